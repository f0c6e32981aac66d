//! What the attributes of a state say of its time to live.
//!
//! Owns their grammar and the messages for what breaks it. Does not own what a TTL means (the host does).

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{Error, LitStr, Result};

/// `ttl = "1h", time = "event", refresh = "read-write", visibility = "relaxed", expired = "output"`
#[derive(Default)]
pub(crate) struct TtlAttribute {
    duration: Option<(u64, LitStr)>,
    time: Option<Word>,
    refresh: Option<Word>,
    visibility: Option<Word>,
    /// The output that expired entries go to.
    expired: Option<LitStr>,
}

/// One of the words that there are: its index among them.
type Word = (usize, LitStr);

impl TtlAttribute {
    /// Takes what it knows; whether it did.
    pub(crate) fn take(&mut self, meta: &ParseNestedMeta<'_>) -> Result<bool> {
        if meta.path.is_ident("ttl") {
            let text: LitStr = meta.value()?.parse()?;
            self.duration = Some((duration(&text)?, text));
        } else if meta.path.is_ident("time") {
            self.time = Some(word(meta, ["event", "processing"])?);
        } else if meta.path.is_ident("refresh") {
            self.refresh = Some(word(meta, ["write", "read-write"])?);
        } else if meta.path.is_ident("visibility") {
            self.visibility = Some(word(meta, ["strict", "relaxed"])?);
        } else if meta.path.is_ident("expired") {
            self.expired = Some(meta.value()?.parse()?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether reads refresh.
    pub(crate) fn is_refreshed_by_reads(&self) -> bool {
        matches!(self.refresh, Some((1, _)))
    }

    /// The declaration, for a state of the type `of` of an operator with these outputs.
    pub(crate) fn declared(&self, of: &str, outputs: &[String]) -> Result<Tokens> {
        let Some((milliseconds, text)) = &self.duration else {
            let words = self.time.iter().chain(&self.refresh).chain(&self.visibility).map(|(_, word)| word);
            return match words.chain(&self.expired).next() {
                Some(word) => Err(Error::new(word.span(), "it belongs to a TTL: say `ttl = \"1h\"`")),
                None => Ok(quote!(::core::option::Option::None)),
            };
        };
        let domain = match self.time {
            Some((0, _)) => quote!(Event),
            Some(_) => quote!(Processing),
            None => {
                let message =
                    "by which time? Say `time = \"event\"` (the watermark) or `time = \"processing\"` (the clock)";
                return Err(Error::new(text.span(), message));
            }
        };
        if !["Value", "Map", "List"].contains(&of) {
            return Err(Error::new(text.span(), "a TTL is for `Value`, `Map` and `List`"));
        }
        if let Some((1, word)) = &self.refresh
            && of != "Value"
        {
            return Err(Error::new(
                word.span(),
                "reads refresh only a `Value`: leave it out, and write what shall live on",
            ));
        }
        let refresh = if self.is_refreshed_by_reads() { quote!(ReadAndWrite) } else { quote!(Write) };
        let visibility = if matches!(self.visibility, Some((1, _))) { quote!(Relaxed) } else { quote!(Strict) };
        let expired_output = match &self.expired {
            None => quote!(::core::option::Option::None),
            Some(name) => match outputs.iter().position(|output| *output == name.value()) {
                Some(index) => {
                    let index = index as u16;
                    quote!(::core::option::Option::Some(#index))
                }
                None => return Err(Error::new(name.span(), "the operator declares no such output")),
            },
        };
        Ok(quote!(::core::option::Option::Some(::wasmill_guest::types::Ttl {
            milliseconds: #milliseconds,
            refresh: ::wasmill_guest::types::Refresh::#refresh,
            domain: ::wasmill_guest::types::TimeDomain::#domain,
            visibility: ::wasmill_guest::types::Visibility::#visibility,
            expired_output: #expired_output,
        })))
    }
}

fn word<const N: usize>(meta: &ParseNestedMeta<'_>, words: [&str; N]) -> Result<Word> {
    let text: LitStr = meta.value()?.parse()?;
    match words.iter().position(|word| *word == text.value()) {
        Some(index) => Ok((index, text)),
        None => Err(Error::new(text.span(), format!("unknown: use one of \"{}\"", words.join("\", \"")))),
    }
}

/// Milliseconds of a duration such as `"90s"`, which is more than none.
fn duration(text: &LitStr) -> Result<u64> {
    let value = text.value();
    let at = value.find(|character: char| !character.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(at);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(millis) if millis > 0 && i64::try_from(millis).is_ok() => Ok(millis),
        _ => Err(Error::new(text.span(), "a TTL is a positive number and a unit: ms, s, m, h or d, such as \"90s\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> Option<u64> {
        duration(&LitStr::new(text, proc_macro2::Span::call_site())).ok()
    }

    #[test]
    fn l6_a_ttl_of_nothing_or_less_is_refused_when_the_component_is_built() {
        for refused in
            ["0s", "0ms", "-1s", "-1", "1", "s", "", "1w", "1.5s", "99999999999999999999d", "9223372036854775808ms"]
        {
            assert_eq!(millis(refused), None, "{refused}");
        }
        let taken = [("1ms", 1), ("90s", 90_000), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000)];
        assert!(taken.iter().all(|(text, expected)| millis(text) == Some(*expected)));
        assert_eq!(millis("9223372036854775807ms"), Some(i64::MAX as u64));
    }
}
