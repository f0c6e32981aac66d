//! Checks docs/cases.md against the sources: the tests that it names are those whose names carry a case's number.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Tree;

/// What stands in the place of tests where there is none.
const NONE: &str = "no test yet";

/// What is wrong with the table in `document`.
pub fn check(document: &str, tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut found = tests(tree);
    let rows: Vec<_> = document.lines().filter_map(row).collect();
    if rows.is_empty() {
        return vec!["docs/cases.md has no row".to_owned()];
    }
    let mut seen = BTreeSet::new();
    for (case, promise, held_by) in rows {
        if promise.is_empty() || !seen.insert(case) {
            wrong.push(format!("docs/cases.md has {case} twice, or without what holds"));
        }
        let tests = found.remove(case).unwrap_or_default();
        let tests: Vec<_> = tests.iter().map(|(file, name)| format!("`{file}` `{name}`")).collect();
        let expected = if tests.is_empty() { NONE.to_owned() } else { tests.join("; ") };
        if held_by != expected {
            wrong.push(format!("docs/cases.md says that {case} is held by {held_by}, and it is by {expected}: run scripts/cases --write"));
        }
    }
    wrong.extend(found.keys().map(|case| format!("docs/cases.md has no row for {case}, which tests name")));
    wrong
}

/// Case, promise and tests of a row.
fn row(line: &str) -> Option<(&str, &str, &str)> {
    let cells: Vec<_> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let [case, promise, held_by] = cells[..] else { return None };
    let (group, number) = case.split_at_checked(1)?;
    let is_case = group.chars().all(|letter| letter.is_ascii_uppercase()) && number.parse::<u32>().is_ok();
    is_case.then_some((case, promise, held_by))
}

/// By case: file and name of each test.
fn tests(tree: &Tree) -> BTreeMap<String, BTreeSet<(String, String)>> {
    let mut found: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    for source in tree.sources.iter().filter(|source| !source.path.starts_with("tests/architecture/")) {
        for pair in source.words.windows(2).filter(|pair| pair[0].text == "fn") {
            let name = &pair[1].text;
            if let Some(case) = name.split_once('_').map(|(case, _)| case).filter(|case| is_case(case)) {
                found.entry(case.to_uppercase()).or_default().insert((source.path.clone(), name.clone()));
            }
        }
    }
    found
}

fn is_case(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(|group| "ceklrstvw".contains(group))
        && (2..=3).contains(&word.len())
        && letters.all(|digit| digit.is_ascii_digit())
}
