//! `#[derive(Operator)]` for wasmill-guest.
//!
//! Owns the code that turns a struct into a declaration: each field of a state's type (or marked `#[state]`) is a state, each
//! marked `#[config]` a configuration key, every other begins with its default. Does not own what the code calls.

mod attributes;
mod ttl;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, LitStr, Result, Type};

use attributes::{ConfigAttribute, OperatorAttribute, PortAttribute, StateAttribute, Timers, check_name, doc, kebab};

/// Makes an operator of a struct.
///
/// On the struct, `#[operator(..)]` with, all optional:
///
/// - `name = ".."`: the operator's own name; the struct's in kebab-case else,
/// - `version = ".."`: the crate's else,
/// - `key = T`: the type of its key; left out where it does not decode it,
/// - `input("..", headers, broadcast)`, once for each: one named `in` else,
/// - `output("..", headers)`, once for each: one named `out` else. The first is where `ctx.emit` goes,
/// - `timers`: it sets timers and implements `OnTimer`; `timers(list)`: it also lists them.
///
/// On a field of a state's type (`Value`, `Map`, `List`, `Broadcast`, `OperatorState` and the library's), `#[state(..)]` with,
/// all optional: `name = ".."` (the field's in kebab-case else), `version = N` (the schema version, 1 else), `lazy` (fetched on
/// demand and not with every batch), `rides_with("input", timers)` (only the batches of these inputs, or timers, bring it),
/// `renamed_from("..")`. A state type under another name needs `#[state]`. Of `Value`, `Map` and `List` also how long their values,
/// entries and elements live: `ttl = "90s"` (ms, s, m, h, d) with `time = "event"` (by the watermark) or `"processing"` (by the
/// clock), and optionally `refresh = "read-write"` (a `Value`'s reads renew it too, not its writes alone) and
/// `visibility = "relaxed"` (what has expired may be read until it is cleaned) and `expired = ".."` (the output to which each value,
/// entry and element goes that has expired: see `docs/formats.md`, "Expired entries").
///
/// On another field, `#[config]` or `#[config(name = "..", default = expression)]`: the key of that name (the field's in
/// kebab-case else) in the pipeline's `config`; required unless it has a default or is an `Option`. The doc comment is what
/// `wasmill inspect` shows.
#[proc_macro_derive(Operator, attributes(operator, state, config))]
pub fn derive_operator(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// The output of an operator that declares none.
const OUTPUT: &str = "out";

/// A field and the part it plays.
struct Part<'a> {
    ident: &'a Ident,
    ty: &'a Type,
    role: Role,
}

enum Role {
    State { name: String, attribute: StateAttribute },
    Config { name: String, attribute: ConfigAttribute, doc: String },
    Scratch,
}

/// The types whose fields are states without being marked.
const STATES: [&str; 11] = [
    "Value",
    "Map",
    "List",
    "Broadcast",
    "OperatorState",
    "Windows",
    "Sessions",
    "IntervalJoin",
    "WindowJoin",
    "Dedup",
    "Pattern",
];

fn expand(input: &DeriveInput) -> Result<Tokens> {
    let attribute = OperatorAttribute::parse(&input.attrs)?;
    let parts = parts(input)?;
    let ident = &input.ident;
    let describe = describe(ident, &attribute, &parts)?;
    let inputs = ports(&attribute.inputs, "in");
    let outputs = ports(&attribute.outputs, OUTPUT);
    let timers = timers(attribute.timers);
    let build = build(&parts);
    let states = parts.iter().filter_map(|part| match part.role {
        Role::State { .. } => Some(part.ident),
        Role::Config { .. } | Role::Scratch => None,
    });
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::wasmill_guest::Operator for #ident #type_generics #where_clause {
            const INPUTS: &'static [::wasmill_guest::Port] = &[#inputs];

            const OUTPUTS: &'static [::wasmill_guest::Port] = &[#outputs];

            #timers

            #describe

            #build

            fn each_state(&mut self, visit: &mut dyn ::core::ops::FnMut(&mut dyn ::wasmill_guest::state::State)) {
                #(::wasmill_guest::state::Field::each_state(&mut self.#states, visit);)*
                let _ = visit;
            }
        }
    })
}

fn parts(input: &DeriveInput) -> Result<Vec<Part<'_>>> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "an operator is a struct"));
    };
    let parts: Vec<Part<'_>> = match &data.fields {
        Fields::Named(fields) => {
            fields.named.iter().filter_map(|field| part(field).transpose()).collect::<Result<_>>()?
        }
        Fields::Unit => Vec::new(),
        Fields::Unnamed(fields) => return Err(Error::new(fields.span(), "an operator's fields have names")),
    };
    let mut seen: Vec<(&str, bool)> = Vec::new();
    for part in &parts {
        let (name, state) = match &part.role {
            Role::State { name, .. } => (name.as_str(), true),
            Role::Config { name, .. } => (name.as_str(), false),
            Role::Scratch => continue,
        };
        if seen.contains(&(name, state)) {
            let what = if state { "a state" } else { "a configuration key" };
            return Err(Error::new(part.ident.span(), format!("there is already {what} `{name}`")));
        }
        seen.push((name, state));
    }
    Ok(parts)
}

fn part(field: &Field) -> Result<Option<Part<'_>>> {
    let Some(ident) = &field.ident else { return Ok(None) };
    let named = |literal: &Option<LitStr>| match literal {
        Some(literal) => literal.value(),
        None => kebab(&ident.to_string()),
    };
    let role = match (StateAttribute::parse(&field.attrs)?, ConfigAttribute::parse(&field.attrs)?) {
        (Some(_), Some(_)) => return Err(Error::new(ident.span(), "a field is state or configuration, not both")),
        (None, Some(attribute)) => Role::Config { name: named(&attribute.name), attribute, doc: doc(&field.attrs) },
        (None, None) if !last_segment(&field.ty).is_some_and(|last| STATES.iter().any(|state| last == state)) => {
            Role::Scratch
        }
        (attribute, None) => {
            let attribute = attribute.unwrap_or_default();
            let name = named(&attribute.name);
            check_name(&name, ident.span())?;
            Role::State { name, attribute }
        }
    };
    Ok(Some(Part { ident, ty: &field.ty, role }))
}

fn describe(ident: &Ident, attribute: &OperatorAttribute, parts: &[Part<'_>]) -> Result<Tokens> {
    let name = attribute.name.as_ref().map_or_else(|| kebab(&ident.to_string()), LitStr::value);
    check_name(&name, ident.span())?;
    let version = match &attribute.version {
        Some(version) => quote!(#version),
        None => quote!(::core::env!("CARGO_PKG_VERSION")),
    };
    let key = match &attribute.key {
        Some(key) => quote_spanned! {key.span()=>
            ::core::option::Option::Some(::std::string::String::from(<#key as ::wasmill_guest::key::Key>::schema()))
        },
        None => quote!(::core::option::Option::None),
    };
    let mut config = Vec::new();
    let mut states = Vec::new();
    for part in parts {
        match &part.role {
            Role::State { name, attribute: state } => states.push(state_descriptor(part.ty, name, state, attribute)?),
            Role::Config { name, attribute, doc } => {
                let required = attribute.default.is_none() && !is_option(part.ty);
                config.push(quote!(::wasmill_guest::describe::config_key(#name, #required, #doc)));
            }
            Role::Scratch => {}
        }
    }
    Ok(quote! {
        fn describe() -> ::wasmill_guest::types::Descriptor {
            ::wasmill_guest::types::Descriptor {
                name: ::std::string::String::from(#name),
                version: ::std::string::String::from(#version),
                key_type: #key,
                inputs: ::wasmill_guest::describe::ports(<Self as ::wasmill_guest::Operator>::INPUTS),
                outputs: ::wasmill_guest::describe::ports(<Self as ::wasmill_guest::Operator>::OUTPUTS),
                config: ::std::vec![#(#config),*],
                states: {
                    let mut states = ::std::vec::Vec::new();
                    #(#states)*
                    states
                },
                lists_timers: ::core::matches!(
                    <Self as ::wasmill_guest::Operator>::TIMERS,
                    ::wasmill_guest::timer::TimerUse::List
                ),
            }
        }
    })
}

fn state_descriptor(ty: &Type, name: &str, state: &StateAttribute, operator: &OperatorAttribute) -> Result<Tokens> {
    let version = state.version.as_ref().map_or_else(|| quote!(1), |version| quote!(#version));
    let (lazy, renamed_from) = (state.lazy, &state.renamed_from);
    let outputs: Vec<String> = match &operator.outputs[..] {
        [] => vec![OUTPUT.to_owned()],
        outputs => outputs.iter().map(|port| port.name.value()).collect(),
    };
    let ttl = state.ttl.declared(&last_segment(ty).map(Ident::to_string).unwrap_or_default(), &outputs)?;
    let mut rides_with = Vec::new();
    for name in &state.rides_with {
        match operator.inputs.iter().position(|port| port.name.value() == name.value()) {
            Some(index) => rides_with.push(index as u16),
            None => return Err(Error::new(name.span(), "the operator declares no such input")),
        }
    }
    let timers = state.rides_with_timers.then(|| quote!(::wasmill_guest::state::TIMERS));
    let rides_with = rides_with.iter().map(|input| quote!(#input)).chain(timers);
    Ok(quote_spanned! {ty.span()=>
        <#ty as ::wasmill_guest::state::Field>::describe(::wasmill_guest::state::Declaration {
            name: #name,
            version: #version,
            lazy: #lazy,
            rides_with: &[#(#rides_with),*],
            renamed_from: &[#(#renamed_from),*],
            ttl: #ttl,
        }, &mut states);
    })
}

fn build(parts: &[Part<'_>]) -> Tokens {
    let fields = parts.iter().map(|Part { ident, ty, role }| match role {
        Role::State { name, attribute } => {
            let open = if attribute.ttl.is_refreshed_by_reads() { quote!(open_refreshed) } else { quote!(open) };
            quote!(#ident: ::wasmill_guest::state::#open::<#ty>(&mut states, #name))
        }
        Role::Config { name, attribute, .. } => {
            let value = match &attribute.default {
                Some(default) => quote!(config.optional::<#ty>(#name)?.unwrap_or_else(|| #default)),
                None if is_option(ty) => quote!(config.optional::<#ty>(#name)?.unwrap_or_default()),
                None => quote!(config.required::<#ty>(#name)?),
            };
            quote!(#ident: #value)
        }
        Role::Scratch => quote!(#ident: ::core::default::Default::default()),
    });
    let fields: Vec<Tokens> = fields.collect();
    quote! {
        fn build(
            config: &mut ::wasmill_guest::config::Reader,
        ) -> ::core::result::Result<Self, ::wasmill_guest::config::Error> {
            let _ = &config;
            let mut states: u16 = 0;
            let _ = &mut states;
            ::core::result::Result::Ok(Self { #(#fields),* })
        }
    }
}

/// What says whether there are timers, and what to do when one fires.
fn timers(timers: Timers) -> Tokens {
    let used = match timers {
        Timers::None => return Tokens::new(),
        Timers::Set => quote!(Set),
        Timers::List => quote!(List),
    };
    quote! {
        const TIMERS: ::wasmill_guest::timer::TimerUse = ::wasmill_guest::timer::TimerUse::#used;

        fn on_timer(
            &mut self,
            timer: ::wasmill_guest::Timer<'_>,
            ctx: &mut ::wasmill_guest::Context<'_>,
        ) -> ::wasmill_guest::Result {
            ::wasmill_guest::OnTimer::fire(self, timer, ctx)
        }
    }
}

/// The ports, or one of this name where none is declared.
fn ports(ports: &[PortAttribute], default: &str) -> Tokens {
    if ports.is_empty() {
        return quote!(::wasmill_guest::Port { name: #default, broadcast: false, headers: false });
    }
    let ports = ports.iter().map(|PortAttribute { name, headers, broadcast }| {
        quote!(::wasmill_guest::Port { name: #name, broadcast: #broadcast, headers: #headers })
    });
    quote!(#(#ports),*)
}

fn is_option(ty: &Type) -> bool {
    last_segment(ty).is_some_and(|last| last == "Option")
}

fn last_segment(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}
