//! A CBOR value as JSON text.
//!
//! Owns what JSON has no word for: byte strings become base64, undefined, other simple values, NaN and infinities null, tags
//! vanish, keys that are not text become their JSON text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minicbor::Decoder;
use minicbor::data::Type;

use super::Unwritable;
use crate::format::cbor::MAX_DEPTH;

/// Appends the value and a newline; an absent value is null.
pub fn push_line(value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), Unwritable> {
    match value {
        Some(value) => {
            let mut decoder = Decoder::new(value);
            push_value(&mut decoder, out, 0)?;
            check_end(&decoder)?;
        }
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'\n');
    Ok(())
}

/// Nothing may follow the value.
pub fn check_end(decoder: &Decoder<'_>) -> Result<(), Unwritable> {
    match decoder.input().len() - decoder.position() {
        0 => Ok(()),
        left => Err(Unwritable::Trailing(left)),
    }
}

/// Appends one value.
pub fn push_value(decoder: &mut Decoder<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Unwritable> {
    if depth > MAX_DEPTH {
        return Err(Unwritable::TooDeep);
    }
    match decoder.datatype()? {
        Type::Null | Type::Undefined | Type::Simple => {
            decoder.skip()?;
            out.extend_from_slice(b"null");
        }
        Type::Bool => out.extend_from_slice(if decoder.bool()? { b"true" } else { b"false" }),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => push_json(out, &decoder.u64()?),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::Int => push_json(out, &i128::from(decoder.int()?)),
        Type::F16 | Type::F32 | Type::F64 => push_json(out, &decoder.f64()?),
        Type::Bytes | Type::BytesIndef => {
            let mut bytes = Vec::new();
            for chunk in decoder.bytes_iter()? {
                bytes.extend_from_slice(chunk?);
            }
            push_json(out, &STANDARD.encode(bytes));
        }
        Type::String => push_json(out, decoder.str()?),
        Type::StringIndef => {
            let mut text = String::new();
            for chunk in decoder.str_iter()? {
                text.push_str(chunk?);
            }
            push_json(out, &text);
        }
        Type::Array | Type::ArrayIndef => {
            let mut left = decoder.array()?;
            out.push(b'[');
            let mut first = true;
            while goes_on(decoder, &mut left)? {
                separate(out, &mut first);
                push_value(decoder, out, depth + 1)?;
            }
            out.push(b']');
        }
        Type::Map | Type::MapIndef => {
            let mut left = decoder.map()?;
            out.push(b'{');
            let mut first = true;
            while goes_on(decoder, &mut left)? {
                separate(out, &mut first);
                push_key(decoder, out, depth + 1)?;
                out.push(b':');
                push_value(decoder, out, depth + 1)?;
            }
            out.push(b'}');
        }
        Type::Tag => {
            decoder.tag()?;
            push_value(decoder, out, depth + 1)?;
        }
        Type::Break | Type::Unknown(_) => {
            let at = decoder.position();
            return Err(Unwritable::NotCbor { reason: format!("no value begins at byte {at}") });
        }
    }
    Ok(())
}

/// Whether a collection goes on; reads the break of one without a length.
pub fn goes_on(decoder: &mut Decoder<'_>, left: &mut Option<u64>) -> Result<bool, Unwritable> {
    match left {
        Some(0) => Ok(false),
        Some(left) => {
            *left -= 1;
            Ok(true)
        }
        None => {
            let ends = decoder.datatype()? == Type::Break;
            if ends {
                decoder.set_position(decoder.position() + 1);
            }
            Ok(!ends)
        }
    }
}

fn separate(out: &mut Vec<u8>, first: &mut bool) {
    if !*first {
        out.push(b',');
    }
    *first = false;
}

fn push_key(decoder: &mut Decoder<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Unwritable> {
    if decoder.datatype()? == Type::String {
        push_json(out, decoder.str()?);
        return Ok(());
    }
    let mut key = Vec::new();
    push_value(decoder, &mut key, depth)?;
    if key.starts_with(b"\"") {
        out.extend_from_slice(&key);
    } else {
        push_json(out, &*String::from_utf8_lossy(&key));
    }
    Ok(())
}

/// Numbers and text: serde_json cannot fail on them, and a `Vec` takes everything.
fn push_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "numbers and text are JSON");
}
