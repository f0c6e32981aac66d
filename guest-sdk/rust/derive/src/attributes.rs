//! What the attributes of an operator say.
//!
//! Owns their grammar and the messages for what breaks it. Does not own the code that is made of them.

use proc_macro2::Span;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, ExprLit, Ident, Lit, LitInt, LitStr, Meta, Result, Token, Type, parenthesized};

use crate::ttl::TtlAttribute;

/// `#[operator(name = "..", version = "..", key = T, input("..", headers), output("..", headers), timers(list))]`
#[derive(Default)]
pub(crate) struct OperatorAttribute {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<LitStr>,
    pub(crate) key: Option<Type>,
    pub(crate) inputs: Vec<PortAttribute>,
    pub(crate) outputs: Vec<PortAttribute>,
    pub(crate) timers: Timers,
}

/// Whether the operator has timers.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timers {
    #[default]
    None,
    Set,
    List,
}

pub(crate) struct PortAttribute {
    pub(crate) name: LitStr,
    pub(crate) headers: bool,
    pub(crate) broadcast: bool,
}

/// `#[state(name = "..", version = 1, lazy, rides_with("input"), renamed_from(".."), ttl = "..", time = "..")]`
#[derive(Default)]
pub(crate) struct StateAttribute {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<LitInt>,
    pub(crate) lazy: bool,
    pub(crate) rides_with: Vec<LitStr>,
    pub(crate) rides_with_timers: bool,
    pub(crate) renamed_from: Vec<LitStr>,
    pub(crate) ttl: TtlAttribute,
}

/// `#[config(name = "..", default = expression)]`
#[derive(Default)]
pub(crate) struct ConfigAttribute {
    pub(crate) name: Option<LitStr>,
    pub(crate) default: Option<Expr>,
}

impl OperatorAttribute {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut parsed = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("operator")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    parsed.name = Some(name(meta.value()?.parse()?)?);
                } else if meta.path.is_ident("version") {
                    parsed.version = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("key") {
                    parsed.key = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("input") {
                    parsed.inputs.push(PortAttribute::parse(&meta, true)?);
                } else if meta.path.is_ident("output") {
                    parsed.outputs.push(PortAttribute::parse(&meta, false)?);
                } else if meta.path.is_ident("timers") {
                    parsed.timers = timers(&meta)?;
                } else {
                    return Err(meta.error("unknown: use name, version, key, input(..), output(..) or timers"));
                }
                Ok(())
            })?;
        }
        unique(parsed.inputs.iter().map(|port| &port.name), "input")?;
        unique(parsed.outputs.iter().map(|port| &port.name), "output")?;
        Ok(parsed)
    }
}

impl PortAttribute {
    fn parse(meta: &ParseNestedMeta<'_>, input: bool) -> Result<Self> {
        let content;
        parenthesized!(content in meta.input);
        let mut port = Self { name: name(content.parse()?)?, headers: false, broadcast: false };
        while !content.is_empty() {
            content.parse::<Token![,]>()?;
            if content.is_empty() {
                break;
            }
            let word: Ident = content.parse()?;
            if word == "headers" {
                port.headers = true;
            } else if word == "broadcast" && input {
                port.broadcast = true;
            } else {
                let words = if input { "headers or broadcast" } else { "headers" };
                return Err(Error::new(word.span(), format!("unknown: use {words}")));
            }
        }
        Ok(port)
    }
}

impl StateAttribute {
    /// What the field's attribute says; `None` where it has none.
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<Option<Self>> {
        let Some(attribute) = find(attributes, "state") else { return Ok(None) };
        let mut parsed = Self::default();
        if let Meta::Path(_) = &attribute.meta {
            return Ok(Some(parsed));
        }
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                parsed.name = Some(name(meta.value()?.parse()?)?);
            } else if meta.path.is_ident("version") {
                let version: LitInt = meta.value()?.parse()?;
                version.base10_parse::<u32>()?;
                parsed.version = Some(version);
            } else if meta.path.is_ident("lazy") {
                parsed.lazy = true;
            } else if meta.path.is_ident("rides_with") {
                (parsed.rides_with, parsed.rides_with_timers) = names_or_timers(&meta)?;
            } else if meta.path.is_ident("renamed_from") {
                parsed.renamed_from = names(&meta)?;
            } else if !parsed.ttl.take(&meta)? {
                return Err(meta.error(
                    "unknown: use name, version, lazy, rides_with(..), renamed_from(..), ttl, time, refresh, visibility or expired",
                ));
            }
            Ok(())
        })?;
        if parsed.lazy && (!parsed.rides_with.is_empty() || parsed.rides_with_timers) {
            return Err(Error::new_spanned(attribute, "a lazy state rides with no input: drop `lazy` or `rides_with`"));
        }
        Ok(Some(parsed))
    }
}

impl ConfigAttribute {
    /// What the field's attribute says; `None` where it has none.
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<Option<Self>> {
        let Some(attribute) = find(attributes, "config") else { return Ok(None) };
        let mut parsed = Self::default();
        if let Meta::Path(_) = &attribute.meta {
            return Ok(Some(parsed));
        }
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                parsed.name = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("default") {
                parsed.default = Some(meta.value()?.parse()?);
            } else {
                return Err(meta.error("unknown: use name or default"));
            }
            Ok(())
        })?;
        Ok(Some(parsed))
    }
}

fn find<'a>(attributes: &'a [Attribute], word: &str) -> Option<&'a Attribute> {
    attributes.iter().find(|attribute| attribute.path().is_ident(word))
}

/// `timers` or `timers(list)`
fn timers(meta: &ParseNestedMeta<'_>) -> Result<Timers> {
    if !meta.input.peek(syn::token::Paren) {
        return Ok(Timers::Set);
    }
    let content;
    parenthesized!(content in meta.input);
    let word: Ident = content.parse()?;
    if word == "list" && content.is_empty() {
        return Ok(Timers::List);
    }
    Err(Error::new(word.span(), "unknown: use timers or timers(list)"))
}

/// `("input", timers)`: names of inputs, and whether timers are among them.
fn names_or_timers(meta: &ParseNestedMeta<'_>) -> Result<(Vec<LitStr>, bool)> {
    let content;
    parenthesized!(content in meta.input);
    let (mut names, mut timers) = (Vec::new(), false);
    while !content.is_empty() {
        if content.peek(Ident) {
            let word: Ident = content.parse()?;
            if word != "timers" {
                return Err(Error::new(word.span(), "unknown: use the names of inputs, or timers"));
            }
            timers = true;
        } else {
            names.push(content.parse()?);
        }
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok((names, timers))
}

fn names(meta: &ParseNestedMeta<'_>) -> Result<Vec<LitStr>> {
    let content;
    parenthesized!(content in meta.input);
    Ok(Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}

/// The doc comment in one line.
pub(crate) fn doc(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let Meta::NameValue(pair) = &attribute.meta
            && let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &pair.value
        {
            lines.push(line.value().trim().to_owned());
        }
    }
    lines.join(" ").trim().to_owned()
}

/// A name by the host's rule, which would otherwise refuse the component.
pub(crate) fn name(literal: LitStr) -> Result<LitStr> {
    check_name(&literal.value(), literal.span())?;
    Ok(literal)
}

pub(crate) fn check_name(name: &str, span: Span) -> Result<()> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if first && rest && name.len() <= 64 {
        return Ok(());
    }
    Err(Error::new(
        span,
        format!(
            "`{name}` is not a name: use 1 to 64 of the characters a-z A-Z 0-9 _ - . beginning with a letter or digit"
        ),
    ))
}

pub(crate) fn unique<'a>(names: impl Iterator<Item = &'a LitStr>, what: &str) -> Result<()> {
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name.value()) {
            return Err(Error::new(name.span(), format!("there is already an {what} `{}`", name.value())));
        }
        seen.push(name.value());
    }
    Ok(())
}

/// `CountPerKey` and `count_per_key` as `count-per-key`.
pub(crate) fn kebab(ident: &str) -> String {
    let ident = ident.strip_prefix("r#").unwrap_or(ident);
    let mut out = String::with_capacity(ident.len() + 4);
    let mut after_lower = false;
    for character in ident.chars() {
        if character == '_' {
            out.push('-');
        } else {
            if character.is_uppercase() && after_lower {
                out.push('-');
            }
            out.extend(character.to_lowercase());
        }
        after_lower = character.is_lowercase() || character.is_ascii_digit();
    }
    out.trim_matches('-').to_owned()
}
