//! Checks the section "A record's path" of docs/architecture.md: each step names a file and a function that exist.

use crate::source::Tree;

/// The section's heading.
const HEADING: &str = "## A record's path";

/// What is wrong with the section in `document`. In each numbered step, a name in backticks that ends in `.rs` is a file;
/// every other one is a function (`Type::function` or `function`) of the file named last.
pub fn check(document: &str, tree: &Tree) -> Vec<String> {
    let steps = steps(document);
    if steps.is_empty() {
        return vec![format!("docs/architecture.md has no numbered steps under \"{HEADING}\"")];
    }
    steps.iter().flat_map(|step| check_step(step, tree)).collect()
}

/// The numbered items of the section, each with the lines that continue it.
fn steps(document: &str) -> Vec<String> {
    let section = document.lines().skip_while(|line| *line != HEADING).skip(1);
    let mut steps: Vec<String> = Vec::new();
    for line in section.take_while(|line| !line.starts_with("## ")) {
        if line.starts_with(|first: char| first.is_ascii_digit()) {
            steps.push(line.to_owned());
        } else if let (true, Some(step)) = (line.starts_with("   "), steps.last_mut()) {
            step.push(' ');
            step.push_str(line.trim());
        }
    }
    steps
}

fn check_step(step: &str, tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut file = None;
    let mut functions = 0;
    for name in step.split('`').skip(1).step_by(2) {
        if name.ends_with(".rs") {
            file = tree.sources.iter().find(|source| source.path == name);
            if file.is_none() {
                return vec![format!("a record's path names {name}, which does not exist: {step}")];
            }
            continue;
        }
        let function = name.trim_end_matches("()").rsplit("::").next().unwrap_or_default();
        let defined = |words: &[crate::source::Word]| {
            words.windows(2).any(|pair| pair[0].text == "fn" && pair[1].text == function)
        };
        match file {
            Some(source) if !defined(&source.words) => {
                wrong.push(format!("a record's path names `{name}`, which is no function of {}", source.path));
            }
            Some(_) => functions += 1,
            None => wrong.push(format!("a record's path names `{name}` before any file: {step}")),
        }
    }
    if wrong.is_empty() && functions == 0 {
        wrong.push(format!("this step of a record's path names no file and function: {step}"));
    }
    wrong
}
