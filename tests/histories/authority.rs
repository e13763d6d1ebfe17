//! Chooses the master, as Sentinels do, but with a promise: what a majority of the servers acknowledged survives.
//!
//! First, the links to the old master are cut, so that it gets no more acknowledgements. Then a majority of all servers
//! must tell how far they are, and the most advanced one is promoted. Data of a later master counts more than a greater
//! offset. This is how Raft elects. Sentinels cut no links, and use older reports. What only they do is not tested here:
//! elections among themselves, and partitions between them.

use models::history::Action;

use crate::connection::Client;
use crate::group::{Group, Loss};

/// Promotes another server, if a majority replies and is not synchronizing.
pub(crate) fn fail_over(group: &Group) {
    group.remember_id();
    let (invoked, old) = (group.record.now(), group.master());
    group.lose(old, Loss::All);
    let mut candidates = Vec::new();
    for server in (0..group.size()).filter(|&server| server != old) {
        let Some(state) = Client::new(group, server).replication() else { continue };
        let ids = group.ids.lock().expect("no thread panics");
        let master = ids.iter().position(|id| *id == state.id);
        group.record.say(&format!("candidate {server}: {master:?}, {}, whole: {}", state.offset, state.is_whole));
        if let (Some(master), false, true) = (master, state.is_master, state.is_whole) {
            candidates.push((master, state.offset, server));
        }
    }
    if candidates.len() * 2 <= group.size() {
        return group.record.say("no majority");
    }
    let (_, _, winner) = candidates.into_iter().max().expect("a majority");
    group.command(winner, "REPLICAOF NO ONE");
    group.record.note(winner, invoked, Action::Promoted { by_majority: true });
    group.record.say(&format!("{winner} was promoted"));
    group.set_master(winner);
    group.follow_master();
}
