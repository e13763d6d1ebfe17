//! Scripts, functions and transactions may do no more than the user who calls them.

use crate::access::users::{is_denied, line_on, user};
use crate::commands::table::COMMANDS;
use testkit::Setup;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};

/// A script that runs the command given as its arguments.
pub(crate) const SCRIPT: &str = "return redis.call(unpack(ARGV))";

/// Two functions that do the same as [`SCRIPT`]. The second is read-only.
pub(crate) const FUNCTIONS: &str = "#!lua name=callers
    local function run(keys, args) return redis.call(unpack(args)) end
    redis.register_function('run', run)
    redis.register_function{function_name='run_read_only', callback=run, flags={'no-writes'}}";

pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Runs a command in a script or a function. `caller` is the start of the command that calls this script or function.
pub(crate) fn run_within(client: &mut Wire, caller: [&str; 2], words: &[String]) -> Reply {
    let words: Vec<_> = caller.into_iter().chain(["1", "key"]).chain(words.iter().map(String::as_str)).collect();
    client.run_words(&words)
}

fn says(reply: &Reply, text: &str) -> bool {
    matches!(reply, Reply::Error(error) if error.contains(text))
}

#[test]
fn scripts_and_functions_may_do_no_more_than_their_user() {
    let server = Setup::oxbloom().start();
    let mut admin = Wire::resp2(&server);
    let mut callers = vec![["EVAL", SCRIPT]];
    if server_version() >= (7, 0) {
        assert_eq!(admin.run_words(&["FUNCTION", "LOAD", FUNCTIONS]), Reply::bulk("callers"));
        callers.push(["FCALL", "run"]);
    }
    // The wording depends on the server's version.
    let is_rejected = |reply: &Reply| says(reply, "ACL failure in script") || says(reply, "can't run this command");
    for caller in callers {
        for allowed in COMMANDS {
            let mut client = user(&server, &format!("~key -@all +{} +{}", caller[0].to_lowercase(), allowed.name));
            for command in COMMANDS {
                let reply = run_within(&mut client, caller, &words(command.line));
                let may = command.name == allowed.name;
                assert_eq!(is_rejected(&reply), !may, "{} with +{}: {reply:?}", command.name, allowed.name);
            }
            let elsewhere = run_within(&mut client, caller, &words(&line_on(allowed, "other")));
            assert!(elsewhere.is_error(), "{} in {}: {elsewhere:?}", allowed.name, caller[0]);
        }
    }
}

#[test]
fn read_only_scripts_and_functions_only_read() {
    if server_version() < (7, 0) {
        return;
    }
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run_words(&["FUNCTION", "LOAD", FUNCTIONS]);
    for caller in [["EVAL_RO", SCRIPT], ["FCALL_RO", "run_read_only"]] {
        for command in COMMANDS {
            let reply = run_within(&mut client, caller, &words(command.line));
            let rejected = says(&reply, "Write commands are not allowed from read-only scripts");
            assert_eq!(rejected, command.writes, "{} in {}: {reply:?}", command.name, caller[0]);
        }
    }
    assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
}

#[test]
fn transactions_may_do_no_more_than_their_user() {
    let server = Setup::oxbloom().start();
    let mut admin = Wire::resp2(&server);
    for denied in COMMANDS {
        let mut client = user(&server, &format!("~key +@all -{}", denied.name));
        client.run("MULTI");
        for command in COMMANDS {
            assert_eq!(is_denied(&client.run(command.line)), command.name == denied.name, "{}", command.name);
        }
        assert!(says(&client.run("EXEC"), "EXECABORT"), "{}", denied.name);
        // A command that is denied only after it was queued does not run either.
        let mut client = user(&server, "~key +@all");
        client.run("MULTI");
        assert_eq!(client.run(denied.line), Reply::simple("QUEUED"));
        admin.run(&format!("ACL SETUSER user -{}", denied.name));
        let replies = client.run("EXEC");
        assert!(replies.elements().iter().all(is_denied), "{}: {replies:?}", denied.name);
    }
    assert_eq!(admin.run("DBSIZE"), Reply::Integer(0));
}
