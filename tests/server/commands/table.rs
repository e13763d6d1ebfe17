//! All commands, with the properties that clients can see.

/// The properties of a command that clients can see.
pub(crate) struct Command {
    pub name: &'static str,
    /// A valid command line. Its key is `key`.
    pub line: &'static str,
    pub arity: i64,
    pub writes: bool,
    pub fast: bool,
    /// Flags of the key specification.
    pub key_flags: &'static [&'static str],
}

impl Command {
    /// Returns true if a server that is out of memory rejects the command. Commands that only remove items are allowed,
    /// since they free memory.
    pub(crate) fn takes_memory(&self) -> bool {
        self.writes && self.key_flags != REMOVES
    }

    /// Returns true if the reply has the seed, which is random.
    pub(crate) fn has_seed_in_reply(&self) -> bool {
        matches!(self.name, "bf.scandump" | "cf.scandump" | "bf.changes")
    }

    /// Returns true if the command may name further keys, which it reads.
    pub(crate) fn may_name_others(&self) -> bool {
        matches!(self.name, "bf.reserve" | "bf.merge")
    }
}

pub(crate) const READS: &[&str; 2] = &["RO", "access"];
const INSERTS: &[&str] = &["RW", "insert"];
const REMOVES: &[&str] = &["RW", "delete"];
const UPDATES: &[&str] = &["RW", "update"];
const MERGES: &[&str] = &["RW", "access", "update"];

pub(crate) const COMMANDS: &[Command] = &[
    command("bf.reserve", "BF.RESERVE key 0.01 100", -4, true, true, UPDATES),
    command("bf.add", "BF.ADD key item", 3, true, true, INSERTS),
    command("bf.madd", "BF.MADD key item", -3, true, false, INSERTS),
    command("bf.insert", "BF.INSERT key ITEMS item", -2, true, false, INSERTS),
    command("bf.addpacked", "BF.ADDPACKED key LINES item", -4, true, false, INSERTS),
    command("bf.exists", "BF.EXISTS key item", 3, false, true, READS),
    command("bf.mexists", "BF.MEXISTS key item", -3, false, false, READS),
    command("bf.existspacked", "BF.EXISTSPACKED key LINES item", -4, false, false, READS),
    command("bf.del", "BF.DEL key item", 3, true, true, REMOVES),
    command("bf.mdel", "BF.MDEL key item", -3, true, false, REMOVES),
    command("bf.delpacked", "BF.DELPACKED key LINES item", -4, true, false, REMOVES),
    command("bf.count", "BF.COUNT key item", 3, false, true, READS),
    command("bf.mcount", "BF.MCOUNT key item", -3, false, false, READS),
    command("bf.merge", "BF.MERGE key 1 key", -4, true, false, MERGES),
    command("bf.fold", "BF.FOLD key", -2, true, false, REMOVES),
    command("bf.card", "BF.CARD key", 2, false, true, READS),
    command("bf.info", "BF.INFO key", -2, false, true, READS),
    command("bf.scandump", "BF.SCANDUMP key 0", 3, false, false, READS),
    command("bf.changes", "BF.CHANGES key", -2, false, false, READS),
    command("bf.loadchunk", "BF.LOADCHUNK key 1 data", 4, true, false, UPDATES),
    command("bf.load", "BF.LOAD key data", 3, true, false, UPDATES),
    command("bf.debug", "BF.DEBUG key", 2, false, true, READS),
    command("cf.reserve", "CF.RESERVE key 100", -3, true, true, UPDATES),
    command("cf.add", "CF.ADD key item", 3, true, true, INSERTS),
    command("cf.addnx", "CF.ADDNX key item", 3, true, true, INSERTS),
    command("cf.insert", "CF.INSERT key ITEMS item", -4, true, false, INSERTS),
    command("cf.insertnx", "CF.INSERTNX key ITEMS item", -4, true, false, INSERTS),
    command("cf.exists", "CF.EXISTS key item", 3, false, true, READS),
    command("cf.mexists", "CF.MEXISTS key item", -3, false, false, READS),
    command("cf.count", "CF.COUNT key item", 3, false, true, READS),
    command("cf.del", "CF.DEL key item", 3, true, true, REMOVES),
    command("cf.info", "CF.INFO key", 2, false, true, READS),
    command("cf.debug", "CF.DEBUG key", 2, false, true, READS),
    command("cf.compact", "CF.COMPACT key", 2, true, false, REMOVES),
    command("cf.convert", "CF.CONVERT key", 2, true, false, UPDATES),
    command("cf.scandump", "CF.SCANDUMP key 0", 3, false, false, READS),
    command("cf.loadchunk", "CF.LOADCHUNK key 1 data", 4, true, false, UPDATES),
];

const fn command(
    name: &'static str,
    line: &'static str,
    arity: i64,
    writes: bool,
    fast: bool,
    key_flags: &'static [&'static str],
) -> Command {
    Command { name, line, arity, writes, fast, key_flags }
}
