//! Every command, its replies in RESP2 and RESP3, and its errors.

use redis::Value;

use crate::support::{Setup, ask, error, run};

#[test]
fn an_item_is_new_once_and_present_ever_after() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    assert_eq!(run(&mut client, "BF.ADD key item"), Ok(Value::Int(1)));
    assert_eq!(run(&mut client, "BF.ADD key item"), Ok(Value::Int(0)));
    assert_eq!(run(&mut client, "BF.EXISTS key item"), Ok(Value::Int(1)));
    assert_eq!(ask::<Vec<i64>>(&mut client, "BF.MEXISTS key item other"), [1, 0]);
    assert_eq!(error(&mut client, "BF.RESERVE key 0.01 100"), "ERR item exists");
    assert_eq!(error(&mut client, "BF.INFO nokey"), "ERR not found");
    assert_eq!(error(&mut client, "BF.INFO key nofield"), "Invalid information value");
}
