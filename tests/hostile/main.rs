//! Components that do harm on purpose: each gets the error that it must get, its neighbour goes on, and the host lives.
//!
//! Owns the table and its figures. Does not own the rows, nor how one is run and judged.

mod case;
mod effects;
mod file;
mod guests;
mod leak;
mod modules;
mod unfit;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use case::{Case, Seen};
use wasmill_tests::Harness;

/// Processes at a time.
const AT_ONCE: usize = 3;
/// The longest that the neighbour may pause, in milliseconds.
const LONGEST_GAP_MS: u64 = 1000;

/// Held by a test that measures others' pauses or memory, so that they do not measure one another.
fn alone() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::new(());
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn each_hostile_component_gets_its_error_and_its_neighbour_goes_on() {
    Harness::get();
    let _alone = alone();
    let cases: Vec<Case> = guests::rows().into_iter().chain(modules::rows()).collect();
    let seen = all(&cases);
    println!(
        "{:<26} {:<5} {:<11} {:>4} {:>4} {:>6} {:>6}  it",
        "component", "made", "on-failure", "code", "MiB", "ms", "gap"
    );
    for Seen { case, wrong, gap_ms, rss_mib, took, code, .. } in &seen {
        let code = code.map_or("none".to_owned(), |code| code.to_string());
        let gap = gap_ms.map_or("-".to_owned(), |gap| gap.to_string());
        let (made, policy) = (case.file.kind(), case.policy.name());
        let wrong = if wrong.is_empty() { "" } else { "WRONG: " };
        println!(
            "{:<26} {made:<5} {policy:<11} {code:>4} {rss_mib:>4} {:>6} {gap:>6}  {wrong}{}",
            case.name,
            took.as_millis(),
            case.does
        );
    }
    let wrong: Vec<_> = seen.iter().filter(|seen| !seen.wrong.is_empty()).collect();
    let panics: usize = seen.iter().map(|seen| seen.panics).sum();
    let gap = seen.iter().filter_map(|seen| seen.gap_ms).max().unwrap_or_default();
    let figures = [
        ("hostile_components", seen.len() as u64, ""),
        ("hostile_wrong_error", wrong.len() as u64, ""),
        ("host_panics", panics as u64, ""),
        ("neighbour_max_gap_ms", gap, "ms"),
    ];
    for (figure, value, unit) in figures {
        println!("{}", serde_json::json!({"figure": figure, "value": value, "unit": unit}));
    }
    let told: Vec<String> =
        wrong.iter().map(|seen| format!("{}: {}", seen.case.name, seen.wrong.join("\n  "))).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    assert!(gap <= LONGEST_GAP_MS, "the neighbour paused for {gap} ms");
    assert!(seen.len() >= 40);
}

/// Runs all rows, a few at a time; those that take longest, the last of each list, first.
fn all(cases: &[Case]) -> Vec<Seen> {
    let (next, seen) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = case::run(*case);
                    seen.lock().expect("no row panics").push((case.name, found));
                }
            });
        }
    });
    let mut seen = seen.into_inner().expect("no row panics");
    seen.sort_by_key(|(name, _)| cases.iter().position(|case| case.name == *name));
    seen.into_iter().map(|(_, seen)| seen).collect()
}
