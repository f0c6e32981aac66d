//! `${env:NAME}` and `${file:PATH}` in the pipeline file's strings.
//!
//! Owns what they stand for and that what they brought in is masked wherever text is shown. `$${` stands for a plain `${`.

use std::fmt;
use std::path::Path;

/// Looks up an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What the substitutions of one pipeline file brought in, so that it can be masked.
#[derive(Clone, Default)]
pub struct Secrets {
    /// What was brought in, and the reference that stands for it; the longest first.
    known: Vec<(String, String)>,
}

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Why a reference has no value; the text names the reference, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("`{0}` has no closing brace; write `$${{` for a plain `${{`")]
    Unclosed(String),
    #[error("`${{{0}}}` is no reference: use `${{env:NAME}}` or `${{file:PATH}}`, or `$${{` for a plain `${{`")]
    Unknown(String),
    #[error("`${{env:{0}}}`: the environment variable {0} is not set (or is not UTF-8)")]
    NoVariable(String),
    #[error("`${{file:{path}}}`: {reason}")]
    NoFile { path: String, reason: String },
}

/// The machine's environment.
#[expect(clippy::disallowed_methods, reason = "the one place where a pipeline file's references are looked up")]
pub(super) fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Replaces the references in `text`; `None` where there are none. A file's path is relative to `base`; one line end at the
/// file's end does not count.
pub(super) fn substitute(
    text: &str,
    base: &Path,
    environment: Environment<'_>,
    secrets: &mut Secrets,
) -> Result<Option<String>, Error> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, reference) = rest.split_at(start);
        if let Some(before) = before.strip_suffix('$') {
            result.push_str(before);
            result.push_str("${");
            rest = &reference[2..];
            continue;
        }
        result.push_str(before);
        let end = reference.find('}').ok_or_else(|| Error::Unclosed(reference.chars().take(40).collect()))?;
        let value = look_up(&reference[2..end], base, environment)?;
        secrets.remember(&value, &reference[..=end]);
        result.push_str(&value);
        rest = &reference[end + 1..];
    }
    result.push_str(rest);
    Ok(Some(result))
}

fn look_up(reference: &str, base: &Path, environment: Environment<'_>) -> Result<String, Error> {
    match reference.split_once(':') {
        Some(("env", name)) => environment(name).ok_or_else(|| Error::NoVariable(name.to_owned())),
        Some(("file", path)) => {
            let text = std::fs::read_to_string(base.join(path))
                .map_err(|error| Error::NoFile { path: path.to_owned(), reason: error.to_string() })?;
            let line = text.strip_suffix('\n').unwrap_or(&text);
            Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
        }
        _ => Err(Error::Unknown(reference.to_owned())),
    }
}

impl Secrets {
    /// Masks `value` as it is, and as it stands within a JSON string.
    pub(super) fn remember(&mut self, value: &str, reference: &str) {
        self.add(value, reference);
        let quoted = serde_json::Value::from(value).to_string();
        self.add(&quoted[1..quoted.len() - 1], reference);
    }

    fn add(&mut self, value: &str, reference: &str) {
        if value.is_empty() || self.known.iter().any(|(known, _)| known == value) {
            return;
        }
        let place = self.known.partition_point(|(known, _)| known.len() >= value.len());
        self.known.insert(place, (value.to_owned(), reference.to_owned()));
    }

    /// `text` with every value that a reference brought in replaced by the reference. A value of less than four characters
    /// is replaced only where it stands alone as a word, so that a `1` does not garble every number.
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        for (value, reference) in &self.known {
            masked =
                if value.len() >= 4 { masked.replace(value, reference) } else { mask_word(&masked, value, reference) };
        }
        masked
    }
}

fn mask_word(text: &str, word: &str, reference: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut done = 0;
    for (start, _) in text.match_indices(word) {
        let joined = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let end = start + word.len();
        if !joined(text[..start].chars().next_back()) && !joined(text[end..].chars().next()) {
            masked.push_str(&text[done..start]);
            masked.push_str(reference);
            done = end;
        }
    }
    masked.push_str(&text[done..]);
    masked
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.iter().map(|(_, reference)| reference)).finish()
    }
}

impl Secret {
    /// Hides `value`.
    #[must_use]
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value, for use; not for show.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl serde::Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "USER" => Some("ada".to_owned()),
            "TOKEN" => Some("s3cret-token".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn references_are_replaced_and_masked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("password"), "pa55word\r\n").unwrap();
        let mut secrets = Secrets::default();
        let mut of = |text: &str| substitute(text, folder.path(), &environment, &mut secrets).unwrap();
        assert_eq!(of("plain $5 {x}"), None);
        assert_eq!(of("${env:USER}:${file:password}@${env:TOKEN}${env:EMPTY}").unwrap(), "ada:pa55word@s3cret-token");
        assert_eq!(of("$${env:USER} ${env:USER}").unwrap(), "${env:USER} ada");
        assert_eq!(
            secrets.mask("pa55word s3cret-token ada (adamant, ada)"),
            "${file:password} ${env:TOKEN} ${env:USER} (adamant, ${env:USER})"
        );
        let quoted = serde_json::json!({ "said": "pa\"55" }).to_string();
        secrets.remember("pa\"55", "${env:QUOTED}");
        assert_eq!(secrets.mask(&quoted), r#"{"said":"${env:QUOTED}"}"#);
    }

    #[test]
    fn secrets_are_known_by_their_references_alone() {
        let mut secrets = Secrets::default();
        for (value, reference) in
            [("ada", "${env:USER}"), ("s3cret-token", "${env:TOKEN}"), ("pa55word", "${file:password}")]
        {
            secrets.remember(value, reference);
        }
        assert_eq!(format!("{secrets:?}"), r#"["${env:TOKEN}", "${file:password}", "${env:USER}"]"#);
    }

    #[test]
    fn a_reference_to_nothing_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            substitute(text, folder.path(), &environment, &mut Secrets::default()).unwrap_err().to_string()
        };
        assert_eq!(of("${env:NONE}"), "`${env:NONE}`: the environment variable NONE is not set (or is not UTF-8)");
        assert_eq!(of("x ${env:NONE"), "`${env:NONE` has no closing brace; write `$${` for a plain `${`");
        assert_eq!(
            of("${HOME}"),
            "`${HOME}` is no reference: use `${env:NAME}` or `${file:PATH}`, or `$${` for a plain `${`"
        );
        assert!(of("${file:none}").starts_with("`${file:none}`: "));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("hidden".to_owned());
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
        assert_eq!(secret.reveal(), "hidden");
    }
}
