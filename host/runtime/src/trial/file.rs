//! A test file: its cases, each with its steps and what should come of them.
//!
//! Owns the order of lines. Does not own what a line says ([`super::line`]) nor what comes of a case.

use std::path::{Path, PathBuf};

use super::granted::Granted;
use super::line::{self, Act, Error, Line, Settings, What};
use crate::config::{Grant, Wasi};

/// A test file.
#[derive(Debug, Clone)]
pub struct CaseFile {
    pub(super) path: PathBuf,
    /// As it stands, for whoever writes it again.
    pub(super) lines: Vec<String>,
    component: Option<PathBuf>,
    grants: Option<Vec<Grant>>,
    wasi: Option<Wasi>,
    cases: Vec<Case>,
}

/// One case: what is done with a component and what should come of it.
#[derive(Debug, Clone)]
pub struct Case {
    pub(super) path: PathBuf,
    /// Its first line, counted from 1, and the line behind its last.
    pub(super) line: usize,
    pub(super) end: usize,
    pub(super) settings: Settings,
    pub(super) steps: Vec<Step>,
    pub(super) expected: Vec<Expected>,
}

#[derive(Debug, Clone)]
pub(super) struct Step {
    pub line: usize,
    pub act: Act,
}

#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub line: usize,
    /// How many steps stand before it: it comes of the last of them.
    pub steps: usize,
    pub what: What,
    /// As it is written.
    pub text: String,
}

impl CaseFile {
    /// Reads a test file.
    ///
    /// # Errors
    /// A file that cannot be read, a line that is wrong or in the wrong place, a name that two cases have.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::Unreadable {
            file: path.to_owned(),
            verb: "read",
            reason: error.to_string(),
        })?;
        Self::parse(path, &text)
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let mut file = Self {
            path: path.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
            component: None,
            grants: None,
            wasi: None,
            cases: Vec::new(),
        };
        for index in 0..file.lines.len() {
            let at = index + 1;
            let text = file.lines[index].trim().to_owned();
            let said = line::read(&text).and_then(|line| line.map_or(Ok(()), |line| file.take((at, text), line)));
            said.map_err(|reason| Error::line(path, at, reason))?;
        }
        if file.cases.is_empty() {
            return Err(Error::line(path, 1, "there is no case: begin one with {\"case\": \"what it shows\"}"));
        }
        Ok(file)
    }

    /// The component that the file names, relative to the file.
    #[must_use]
    pub fn component(&self) -> Option<PathBuf> {
        let named = self.component.as_ref()?;
        Some(self.path.parent().map_or_else(|| named.clone(), |folder| folder.join(named)))
    }

    /// What the file grants the component.
    #[must_use]
    pub fn granted(&self) -> Granted {
        let grants = self.grants.iter().flatten().copied().collect();
        Granted { grants, wasi: self.wasi.unwrap_or_default() }
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cases, in the order of the file.
    #[must_use]
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    fn take(&mut self, (at, text): (usize, String), line: Line) -> Result<(), String> {
        let what = match &line {
            Line::Component(_) if self.component.is_some() || !self.cases.is_empty() => "the component is named",
            Line::Grants(_) if self.grants.is_some() || !self.cases.is_empty() => "`grants` is said",
            Line::Wasi(_) if self.wasi.is_some() || !self.cases.is_empty() => "`wasi` is said",
            _ => "",
        };
        if !what.is_empty() {
            return Err(format!("{what} once, before the first case"));
        }
        let line = match line {
            Line::Component(component) => {
                self.component = Some(component);
                return Ok(());
            }
            Line::Grants(grants) => {
                self.grants = Some(grants);
                return Ok(());
            }
            Line::Wasi(wasi) => {
                self.wasi = Some(wasi);
                return Ok(());
            }
            Line::Case(settings) => return self.begin(at, settings),
            line => line,
        };
        let case = self.cases.last_mut().ok_or("this stands before the first {\"case\": …}")?;
        case.end = at + 1;
        match line {
            Line::Act(act) => case.act(at, act),
            Line::Expected(what) => case.expect((at, text), what),
            Line::Component(_) | Line::Grants(_) | Line::Wasi(_) | Line::Case(_) => Ok(()),
        }
    }

    fn begin(&mut self, at: usize, settings: Settings) -> Result<(), String> {
        if let Some(other) = self.cases.iter().find(|case| case.settings.name == settings.name) {
            return Err(format!(
                "the case `{}` is at line {} already: names are told apart",
                settings.name, other.line
            ));
        }
        let (path, steps, expected) = (self.path.clone(), Vec::new(), Vec::new());
        self.cases.push(Case { path, line: at, end: at + 1, settings, steps, expected });
        Ok(())
    }
}

impl Case {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The file that it stands in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its first line, counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The line of a step, counted from 1; with none before it that of the case.
    pub(super) fn line_of(&self, steps: usize) -> usize {
        steps.checked_sub(1).and_then(|step| self.steps.get(step)).map_or(self.line, |step| step.line)
    }

    fn act(&mut self, line: usize, act: Act) -> Result<(), String> {
        if self.steps.last().is_some_and(|step| step.act == Act::End) {
            return Err("the input has ended: nothing comes behind {\"end\": true}".to_owned());
        }
        if self.expected.iter().any(|expected| matches!(expected.what, What::Fails(_) | What::Timers(_))) {
            return Err("behind `fails` or `timers` the case is over".to_owned());
        }
        self.steps.push(Step { line, act });
        Ok(())
    }

    fn expect(&mut self, (line, text): (usize, String), what: What) -> Result<(), String> {
        match self.expected.last().map(|expected| &expected.what) {
            Some(What::Fails(_)) => return Err("behind `fails` the case is over".to_owned()),
            Some(What::Timers(_)) => return Err("behind `timers` the case is over".to_owned()),
            _ => {}
        }
        self.expected.push(Expected { line, steps: self.steps.len(), what, text });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<CaseFile, String> {
        CaseFile::parse(Path::new("a/b.test.jsonl"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_should_come_of_a_step_stands_behind_it() {
        let text = "# what it is\n{\"component\": \"../b.wasm\"}\n\n{\"case\": \"one\"}\n{\"record\": 1}\n{\"emit\": 2}\n\
                    {\"end\": true}\n{\"timers\": []}\n{\"case\": \"two\"}\n{\"fails\": \"no\"}\n";
        let file = parse(text).unwrap();
        assert_eq!(file.component().unwrap(), Path::new("a/../b.wasm"));
        let [one, two] = file.cases() else { panic!("two cases") };
        assert_eq!((one.line(), one.end, one.steps.len()), (4, 9, 2));
        assert_eq!(
            one.expected.iter().map(|expected| (expected.line, expected.steps)).collect::<Vec<_>>(),
            [(6, 1), (8, 2)]
        );
        assert_eq!((two.name(), two.line_of(0), one.line_of(2)), ("two", 9, 7));
    }

    #[test]
    fn a_line_in_the_wrong_place_is_named() {
        for (text, says) in [
            ("# nothing\n", "a/b.test.jsonl:1: there is no case"),
            ("{\"record\": 1}\n", "a/b.test.jsonl:1: this stands before the first"),
            ("{\"case\": \"a\"}\n{\"end\": true}\n{\"record\": 1}", "a/b.test.jsonl:3: the input has ended"),
            ("{\"case\": \"a\"}\n{\"fails\": \"\"}\n{\"record\": 1}", "a/b.test.jsonl:3: behind `fails`"),
            ("{\"case\": \"a\"}\n{\"timers\": []}\n{\"emit\": 1}", "a/b.test.jsonl:3: behind `timers`"),
            ("{\"case\": \"a\"}\n\n{\"case\": \"a\"}", "a/b.test.jsonl:3: the case `a` is at line 1 already"),
            ("{\"case\": \"a\"}\n{\"component\": \"x\"}", "a/b.test.jsonl:2: the component is named once"),
            ("{\"grants\": []}\n{\"grants\": []}", "a/b.test.jsonl:2: `grants` is said once, before"),
            ("{\"case\": \"a\"}\n{\"wasi\": \"deny\"}", "a/b.test.jsonl:2: `wasi` is said once, before"),
            ("{\"case\": \"a\"}\nrecord", "a/b.test.jsonl:2: not JSON: expected value (column 1)"),
        ] {
            assert!(parse(text).unwrap_err().starts_with(says), "{text}: {:?}", parse(text).unwrap_err());
        }
    }
}
