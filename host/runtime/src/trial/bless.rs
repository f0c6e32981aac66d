//! Writes what came of a case into its test file, in the place of what it expected.
//!
//! Owns which lines are replaced: the expectations of the cases named. Steps, settings and comments stay as they are.

use super::drive::Runs;
use super::file::{Case, CaseFile};
use super::judge;
use super::line::{Error, What};

impl CaseFile {
    /// Writes the file again with what came of some of its cases, by their index.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn bless(&self, blessed: &[(usize, &Runs)]) -> Result<(), Error> {
        let text = self.blessed(blessed);
        std::fs::write(&self.path, text).map_err(|error| Error::Unreadable {
            file: self.path.clone(),
            verb: "written",
            reason: error.to_string(),
        })
    }

    fn blessed(&self, blessed: &[(usize, &Runs)]) -> String {
        let mut lines: Vec<String> = Vec::new();
        let mut cases = blessed.iter().filter_map(|(case, runs)| Some((self.cases().get(*case)?, runs))).peekable();
        for (index, text) in self.lines.iter().enumerate() {
            let line = index + 1;
            while cases.next_if(|(case, _)| case.end <= line).is_some() {}
            match cases.peek() {
                Some((case, runs)) if case.line <= line => {
                    if case.expected.iter().any(|expected| expected.line == line) {
                        continue;
                    }
                    lines.push(text.clone());
                    if let Some(steps) = case.steps_at(line) {
                        lines.extend(case.outcome(steps, runs));
                    }
                }
                _ => lines.push(text.clone()),
            }
        }
        lines.join("\n") + "\n"
    }
}

impl Case {
    /// How many steps are done with this line; `None` where it is neither a step nor the case's first.
    fn steps_at(&self, line: usize) -> Option<usize> {
        if line == self.line {
            Some(0)
        } else {
            self.steps.iter().position(|step| step.line == line).map(|step| step + 1)
        }
    }

    /// What came of the step before, as lines.
    fn outcome(&self, steps: usize, runs: &Runs) -> Vec<String> {
        let seen = runs.stepwise.seen.iter().filter(|seen| seen.steps == steps);
        let mut lines: Vec<_> = seen.map(|seen| runs.line(seen)).collect();
        match &runs.stepwise.failed {
            Some(failed) if failed.steps == steps => lines.push(judge::fails_line(failed)),
            None if steps == self.steps.len() && (self.expects_timers() || !runs.stepwise.timers.is_empty()) => {
                lines.push(runs.timers_line());
            }
            _ => {}
        }
        lines
    }

    fn expects_timers(&self) -> bool {
        self.expected.iter().any(|expected| matches!(expected.what, What::Timers(_)))
    }
}
