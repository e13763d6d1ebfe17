//! The map of the source files in `src/lib.rs` is true, so are the lists of kinds, and code for a processor is in its
//! room.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use oxbloom_filter::internals::Kind;

/// Returns the source files of a module, which is a file or a folder.
fn files_of(module: &Path) -> Vec<PathBuf> {
    if !module.is_dir() {
        return vec![module.with_extension("rs")];
    }
    let entries = fs::read_dir(module).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_of(&path) } else { vec![path] }).collect()
}

/// Returns the modules of the crate that code names, without those that only comments or its unit tests name.
fn modules_in(code: &str) -> BTreeSet<String> {
    let code = code.split("#[cfg(test)]").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let named = lines.flat_map(|line| line.split("crate::").skip(1));
    named.map(|rest| rest.chars().take_while(|&c| c.is_ascii_lowercase() || c == '_').collect()).collect()
}

#[test]
fn files_use_only_files_above_them_in_the_map() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let root = fs::read_to_string(source.join("lib.rs")).unwrap();
    let (_, list) = root.split_once("a file uses only files above it").unwrap();
    let (list, code) = list.split_once("#![deny").unwrap();
    let map: Vec<_> = list.split('`').skip(1).step_by(2).collect();
    let declared: BTreeSet<_> = code
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    let listed: BTreeSet<_> = map.iter().copied().chain(["internals"]).collect();
    assert_eq!(declared, listed, "the map has all modules");
    for (place, module) in map.iter().enumerate() {
        for file in files_of(&source.join(module)) {
            let used = modules_in(&fs::read_to_string(&file).unwrap());
            for other in used.iter().filter(|other| *other != module) {
                let above = map[..place].contains(&other.as_str());
                assert!(above, "{} uses {other}, which is not above {module} in the map", file.display());
            }
        }
    }
}

#[test]
fn lists_of_kinds_outside_the_code_have_every_kind() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let kinds: Vec<_> = Kind::ALL.iter().map(|kind| kind.name().to_str().unwrap()).collect();
    let page = fs::read_to_string(root.join("docs/how-it-works.md")).unwrap();
    let rows =
        page.lines().skip_while(|line| !line.starts_with("|---")).skip(1).map_while(|row| row.strip_prefix("| "));
    assert_eq!(rows.map(|row| row.split(' ').next().unwrap()).collect::<Vec<_>>(), kinds);
    let types = fs::read_to_string(root.join("python/oxbloom/_types.py")).unwrap();
    let (_, list) = types.split_once("Kind = Literal[").unwrap();
    assert_eq!(list.split(']').next().unwrap().split('"').skip(1).step_by(2).collect::<Vec<_>>(), kinds);
}

#[test]
fn only_the_room_for_processors_has_code_for_a_processor() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR"));
    let [room, module, python] = ["src/arch", "../src", "../python/src"].map(|folder| library.join(folder));
    let files = [library.join("src"), module, python].iter().flat_map(|folder| files_of(folder)).collect::<Vec<_>>();
    let (inside, outside): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.starts_with(&room));
    let words = ["target_arch", "target_feature", "feature_detected", "core::arch", "std::arch", "x86_64", "aarch64"];
    let word_in = |file: &PathBuf| {
        let code = fs::read_to_string(file).unwrap();
        words.into_iter().find(|&word| code.contains(word))
    };
    assert!(inside.iter().any(|file| word_in(file).is_some()));
    for file in outside {
        assert_eq!(word_in(&file), None, "{} has code for a processor", file.display());
    }
}
