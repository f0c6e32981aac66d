//! Reads the tree's Rust sources as tokens and finds what each refers to.
//!
//! Owns which files count, which code is test code, and how `crate`, `self`, `super` and nested `use` become one absolute
//! path. Does not own any rule.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Folders with the project's sources.
const FOLDERS: [&str; 5] = ["host", "guest-sdk", "examples", "tests", "bench"];

/// Kinds of file in which no machine's places may be named.
const TEXTS: [&str; 8] = ["rs", "md", "toml", "py", "wit", "yml", "sh", ""];

/// The workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

/// The sources under test.
pub struct Tree {
    pub sources: Vec<Source>,
}

impl Tree {
    /// Files that another one declares as `#[cfg(test)] mod name;` are test code, and so is what lies under them.
    pub fn of(mut sources: Vec<Source>) -> Self {
        let declared: Vec<(String, Vec<String>)> = sources
            .iter()
            .flat_map(|source| source.test_modules.iter().map(|module| (source.crate_folder(), module.clone())))
            .collect();
        for source in &mut sources {
            let (folder, module) = (source.crate_folder(), module_of(&source.path));
            if declared.iter().any(|(other, test)| *other == folder && module.starts_with(test)) {
                source.make_test();
            }
        }
        Self { sources }
    }

    /// The workspace's own sources.
    pub fn load() -> Self {
        let mut sources = Vec::new();
        for (path, text) in texts() {
            if path.ends_with(".rs") && FOLDERS.iter().any(|folder| path.starts_with(&format!("{folder}/"))) {
                sources.push(Source::parse(&path, &text).unwrap_or_else(|error| panic!("{path}: {error}")));
            }
        }
        assert!(sources.len() > 20, "only {} sources found under {}", sources.len(), root().display());
        Self::of(sources)
    }
}

/// Every text file of the project, by its path from the root.
pub fn texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&root(), &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, found: &mut Vec<(String, String)>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.expect("the folder can be read").path()) {
        let relative = path.strip_prefix(root()).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let name = relative.rsplit('/').next().unwrap_or_default();
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let made = ["target", "bindings"].contains(&name);
            let written_by_runs = relative.starts_with("examples/") && ["run", "data"].contains(&name);
            if !made && !written_by_runs && (name == ".ci" || !name.starts_with('.')) {
                collect(&path, found);
            }
        } else if !name.starts_with(".git")
            && TEXTS.contains(&extension.as_ref())
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            found.push((relative, text));
        }
    }
}

/// One source file.
pub struct Source {
    /// From the root, with `/`.
    pub path: String,
    pub text: String,
    /// Everything it refers to by a path.
    pub references: Vec<Reference>,
    /// Every identifier, in order.
    pub words: Vec<Word>,
    is_test: bool,
    /// Modules that it declares, with test code in files of their own.
    test_modules: Vec<Vec<String>>,
}

/// A path as written somewhere, made absolute: `crate::a::b` of the crate's own, else the external crate's name first.
pub struct Reference {
    pub segments: Vec<String>,
    pub line: usize,
    pub in_test: bool,
}

/// An identifier.
pub struct Word {
    pub text: String,
    pub line: usize,
    pub in_test: bool,
    /// Whether a dot stands before it.
    pub is_method: bool,
}

impl Source {
    pub fn parse(path: &str, text: &str) -> Result<Self, String> {
        let tokens: TokenStream = text.parse().map_err(|error| format!("not Rust: {error}"))?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_test = name == "tests.rs" || path.starts_with("tests/") || path.contains("/tests/");
        let mut source = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            references: Vec::new(),
            words: Vec::new(),
            is_test,
            test_modules: Vec::new(),
        };
        let scope = Scope { module: module_of(path), in_test: is_test };
        source.walk(tokens, &scope);
        Ok(source)
    }

    /// Whether all of the file is test code.
    pub fn is_test(&self) -> bool {
        self.is_test
    }

    fn make_test(&mut self) {
        self.is_test = true;
        self.references.iter_mut().for_each(|reference| reference.in_test = true);
        self.words.iter_mut().for_each(|word| word.in_test = true);
    }

    fn crate_folder(&self) -> String {
        self.path.split_once("src/").map_or("", |(folder, _)| folder).to_owned()
    }

    /// The first module under the crate's root that this file belongs to; `None` for the root itself.
    pub fn top_module(&self) -> Option<String> {
        module_of(&self.path).into_iter().next()
    }

    fn walk(&mut self, stream: TokenStream, scope: &Scope) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        let mut test_item = false;
        while at < tokens.len() {
            let here = Scope { module: scope.module.clone(), in_test: scope.in_test || test_item };
            match &tokens[at] {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    if let Some(TokenTree::Group(group)) = tokens.get(at + 1) {
                        test_item |= is_test_attribute(&group.stream());
                        self.walk(group.stream(), &here);
                        at += 1;
                    }
                }
                TokenTree::Punct(mark) if mark.as_char() == ';' => test_item = false,
                TokenTree::Group(group) => {
                    self.walk(group.stream(), &here);
                    test_item &= group.delimiter() != Delimiter::Brace;
                }
                TokenTree::Ident(_) => at = self.walk_word(&tokens, at, &here),
                _ => {}
            }
            at += 1;
        }
    }

    /// Takes the identifier at `at` and what belongs to it; returns the last index taken.
    fn walk_word(&mut self, tokens: &[TokenTree], at: usize, scope: &Scope) -> usize {
        let TokenTree::Ident(ident) = &tokens[at] else { return at };
        let line = ident.span().start().line;
        let is_method = at > 0 && is_punct(&tokens[at - 1], '.');
        let text = ident.to_string();
        self.words.push(Word { text: text.clone(), line, in_test: scope.in_test, is_method });
        if text == "mod" && scope.in_test && tokens.get(at + 2).is_some_and(|next| is_punct(next, ';')) {
            let name = tokens[at + 1].to_string();
            self.test_modules.push(scope.module.iter().cloned().chain([name]).collect());
        }
        if text == "mod"
            && let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                (tokens.get(at + 1), tokens.get(at + 2))
        {
            self.words.push(Word { text: name.to_string(), line, in_test: scope.in_test, is_method: false });
            let mut module = scope.module.clone();
            module.push(name.to_string());
            self.walk(body.stream(), &Scope { module, in_test: scope.in_test });
            return at + 2;
        }
        if text == "use" && !tokens.get(at + 1).is_some_and(|next| is_punct(next, '<')) {
            let end =
                tokens[at..].iter().position(|token| is_punct(token, ';')).map_or(tokens.len(), |found| at + found);
            self.use_tree(&tokens[at + 1..end], &[], scope);
            return end.saturating_sub(1);
        }
        let continues = at >= 2
            && is_separator(tokens, at - 2)
            && matches!(tokens.get(at.wrapping_sub(3)), Some(TokenTree::Ident(_)));
        if !is_method && !continues && is_separator(tokens, at + 1) {
            let segments = path_at(tokens, at);
            self.refer(segments, line, scope);
        }
        at
    }

    /// Everything that `use prefix::tokens` brings in.
    fn use_tree(&mut self, tokens: &[TokenTree], prefix: &[String], scope: &Scope) {
        let mut segments = prefix.to_vec();
        let mut line = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if ident == "as" => break,
                TokenTree::Ident(ident) => {
                    line = ident.span().start().line;
                    let text = ident.to_string();
                    self.words.push(Word { text: text.clone(), line, in_test: scope.in_test, is_method: false });
                    segments.push(text);
                }
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for branch in inner.split(|token| is_punct(token, ',')).filter(|branch| !branch.is_empty()) {
                        self.use_tree(branch, &segments, scope);
                    }
                    return;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        self.refer(segments, line, scope);
    }

    fn refer(&mut self, segments: Vec<String>, line: usize, scope: &Scope) {
        let own =
            |module: &[String]| std::iter::once("crate".to_owned()).chain(module.iter().cloned()).collect::<Vec<_>>();
        let supers = segments.iter().take_while(|segment| *segment == "super").count();
        let (base, rest) = match segments.first().map(String::as_str) {
            Some("self") => (own(&scope.module), &segments[1..]),
            Some("super") => (own(&scope.module[..scope.module.len().saturating_sub(supers)]), &segments[supers..]),
            _ => (Vec::new(), &segments[..]),
        };
        let segments = base.into_iter().chain(rest.iter().cloned()).collect();
        self.references.push(Reference { segments, line, in_test: scope.in_test });
    }
}

struct Scope {
    module: Vec<String>,
    in_test: bool,
}

/// `host/runtime/src/state/cache.rs` is the module `state::cache`.
fn module_of(path: &str) -> Vec<String> {
    let inside = path.split_once("src/").map_or(path, |(_, inside)| inside);
    let mut parts: Vec<String> = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

fn is_test_attribute(attribute: &TokenStream) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text == "cfg(test)" || text == "test"
}

fn is_punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Whether `::` stands at `at`.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    matches!((tokens.get(at), tokens.get(at + 1)), (Some(first), Some(second)) if is_punct(first, ':') && is_punct(second, ':'))
}

/// The identifiers joined by `::` from `at` on.
fn path_at(tokens: &[TokenTree], mut at: usize) -> Vec<String> {
    let mut segments = Vec::new();
    while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
        segments.push(ident.to_string());
        if !is_separator(tokens, at + 1) {
            break;
        }
        at += 3;
    }
    segments
}
