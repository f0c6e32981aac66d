//! `wasmill test`: components tried on the cases of test files.
//!
//! Owns which files are taken, with which component, and how a verdict is told. Does not own what a case means.

mod found;

use std::path::{Path, PathBuf};

use serde_json::json;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_runtime::config::Wasi;
use wasmill_runtime::guest::{Engine, EngineOptions};
use wasmill_runtime::trial::{self, Case, CaseFile, Difference, Granted, Runs, Tried};

use crate::args;
use crate::exit::Exit;
use crate::logging::Screen;
use crate::show;

use self::found::Found;

/// Lines of one difference that are shown, of each side; the rest is counted.
const SHOWN: usize = 20;

/// Runs the cases that `options` name.
pub fn test(options: &args::Test, as_json: bool, screen: &Screen) -> Result<Exit, Fault> {
    let files = found::find(&options.path, options.cases.as_deref())?;
    let chosen: Vec<_> = files.iter().map(|found| choose(found, options.filter.as_deref())).collect();
    let total = chosen.iter().map(Vec::len).sum();
    if total == 0 {
        let all: usize = files.iter().map(|found| found.file.cases().len()).sum();
        let filter = options.filter.as_deref().unwrap_or_default();
        return Err(Fault::new(FaultKind::User, format!("no case found: `{filter}` is in the name of none of {all}")));
    }
    let mut bench = Bench { options, components: Components::new()?, tally: Tally::default(), total, as_json, screen };
    for (found, cases) in files.iter().zip(&chosen) {
        bench.file(found, cases)?;
    }
    screen.progress("");
    Ok(bench.tally.tell(as_json))
}

/// What the command line grants, whatever the files say.
fn granted(options: &args::Test) -> Granted {
    let wasi = if options.deny_wasi { Wasi::Deny } else { Wasi::Refuse };
    Granted { grants: options.grants.iter().copied().collect(), wasi }
}

/// The indexes of the cases that the filter leaves.
fn choose(found: &Found, filter: Option<&str>) -> Vec<usize> {
    let path = found.file.path().display().to_string();
    let meant = |case: &Case| filter.is_none_or(|text| case.name().contains(text) || path.contains(text));
    found.file.cases().iter().enumerate().filter(|(_, case)| meant(case)).map(|(index, _)| index).collect()
}

/// Components by their file and what they are granted, each compiled once.
struct Components {
    engine: Engine,
    loaded: Vec<(PathBuf, Granted, Tried)>,
}

impl Components {
    fn new() -> Result<Self, Fault> {
        let engine = Engine::new(EngineOptions { cache_dir: None });
        let engine = engine.map_err(|error| Fault::new(FaultKind::Internal, error))?;
        Ok(Self { engine, loaded: Vec::new() })
    }

    fn get(&mut self, file: &Path, granted: Granted) -> Result<Tried, Fault> {
        let known = self.loaded.iter().find(|(loaded, with, _)| loaded == file && *with == granted);
        if let Some((.., tried)) = known {
            return Ok(tried.clone());
        }
        let tried = Tried::load(&self.engine, file, &granted)?;
        self.loaded.push((file.to_owned(), granted, tried.clone()));
        Ok(tried)
    }
}

#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    blessed: usize,
}

impl Tally {
    fn tell(&self, as_json: bool) -> Exit {
        let Self { passed, failed, blessed } = *self;
        let cases = passed + failed;
        if as_json {
            let line = json!({ "cases": cases, "passed": passed, "failed": failed, "blessed": blessed });
            show::print(&format!("{line}\n"));
        } else {
            let blessed = if blessed > 0 { format!(", {blessed} blessed") } else { String::new() };
            let noun = if cases == 1 { "case" } else { "cases" };
            show::print(&format!("{cases} {noun}: {passed} passed, {failed} failed{blessed}\n"));
        }
        if failed == 0 { Exit::Done } else { Exit::Failed }
    }
}

struct Bench<'a> {
    options: &'a args::Test,
    components: Components,
    tally: Tally,
    total: usize,
    as_json: bool,
    screen: &'a Screen,
}

impl Bench<'_> {
    /// Runs some cases of a file; with `--bless` writes those that did not come out as expected.
    fn file(&mut self, found: &Found, cases: &[usize]) -> Result<(), Fault> {
        if cases.is_empty() {
            return Ok(());
        }
        let path = found.file.path().display();
        let granted = found.file.granted().and(&granted(self.options));
        let tried = self.components.get(&found.component, granted).map_err(|fault| fault.at(&path))?;
        let mut ran = Vec::new();
        for &index in cases {
            let case = &found.file.cases()[index];
            let done = self.tally.passed + self.tally.failed + ran.len();
            self.screen.progress(&format!("{done} of {} cases | {path}: {}", self.total, case.name()));
            let runs = trial::run(&tried, case, &self.options.batches)?;
            let differences = trial::judge(case, &runs);
            if self.options.bless {
                ran.push((index, runs, differences));
            } else {
                self.tell(case, &differences, false);
            }
        }
        if self.options.bless { self.bless(&found.file, &ran) } else { Ok(()) }
    }

    /// What the file expects becomes what came; how runs differ from one another stays.
    fn bless(&mut self, file: &CaseFile, ran: &[(usize, Runs, Vec<Difference>)]) -> Result<(), Fault> {
        let differ = ran.iter().filter(|(_, _, differences)| !differences.is_empty());
        let blessed: Vec<_> = differ.map(|(index, runs, _)| (*index, runs)).collect();
        if !blessed.is_empty() {
            file.bless(&blessed)?;
        }
        let written = CaseFile::read(file.path())?;
        for (index, runs, _) in ran {
            let case = &written.cases()[*index];
            let is_blessed = blessed.iter().any(|(blessed, _)| blessed == index);
            self.tally.blessed += usize::from(is_blessed);
            self.tell(case, &trial::judge(case, runs), is_blessed);
        }
        Ok(())
    }

    fn tell(&mut self, case: &Case, differences: &[Difference], is_blessed: bool) {
        let passed = differences.is_empty();
        if passed {
            self.tally.passed += 1;
        } else {
            self.tally.failed += 1;
        }
        if self.as_json {
            let line = json!({
                "file": case.path().display().to_string(),
                "line": case.line(),
                "case": case.name(),
                "passed": passed,
                "blessed": is_blessed,
                "differences": differences,
            });
            show::print(&format!("{line}\n"));
            return;
        }
        let word = match (passed, is_blessed) {
            (true, false) => "ok     ",
            (true, true) => "blessed",
            (false, _) => "FAILED ",
        };
        let mut text = format!("{word} {}:{} {}\n", case.path().display(), case.line(), case.name());
        differences.iter().for_each(|difference| push(difference, &mut text));
        show::print(&text);
    }
}

/// A difference for people: what was expected and did not come, and what came instead.
fn push(difference: &Difference, text: &mut String) {
    let Difference { line, what, expected, found } = difference;
    text.push_str(&format!("  line {line}: {what}\n"));
    let expected = expected.iter().map(|(line, shown)| match line {
        Some(line) => format!("    - {shown}   (line {line})\n"),
        None => format!("    - {shown}\n"),
    });
    let found = found.iter().map(|shown| format!("    + {shown}\n"));
    for side in [expected.collect::<Vec<_>>(), found.collect()] {
        side.iter().take(SHOWN).for_each(|line| text.push_str(line));
        if side.len() > SHOWN {
            text.push_str(&format!("    … and {} more\n", side.len() - SHOWN));
        }
    }
}
