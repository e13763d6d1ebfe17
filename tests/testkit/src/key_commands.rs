//! Random commands on whole keys, which the server has for all data types.

use redis::{Connection, Value};

use crate::command::{ask, run, run_words};
use models::keyspace::KeyspaceModel;
use models::random::Random;

/// Deletes, copies or renames a key, or restores a dump of it, in the server and in the model. Returns the command.
pub(crate) fn run_on_key<T: Clone + Ord>(
    model: &mut KeyspaceModel<T>,
    random: &mut Random,
    client: &mut Connection,
    key: &str,
    other: &str,
) -> String {
    match random.below(4) {
        0 => {
            let command = format!("{} {key}", random.one_of(&["DEL", "UNLINK"]));
            run(client, &command).unwrap();
            model.delete(key);
            command
        }
        1 => {
            let command = format!("COPY {key} {other}{}", random.one_of(&["", " REPLACE"]));
            // A key cannot be copied onto itself.
            if key != other && ask::<i64>(client, &command) == 1 {
                model.copy(key, other);
            }
            command
        }
        2 => {
            let command = format!("RENAME {key} {other}");
            if run(client, &command).is_ok() && key != other {
                model.rename(key, other);
            }
            command
        }
        _ => {
            let Ok(Value::BulkString(payload)) = run(client, &format!("DUMP {key}")) else {
                return format!("DUMP {key}");
            };
            run_words(client, &[b"RESTORE".as_slice(), other.as_bytes(), b"0", &payload, b"REPLACE"]).unwrap();
            model.copy(key, other);
            format!("RESTORE {other} 0 (dump of {key}) REPLACE")
        }
    }
}
