//! Headers between Kafka's encoding and JSON.
//!
//! As JSON they are a list of `{key, value}`, because keys may repeat and their order counts; `$headers |
//! from_entries` makes an object of them. Bytes that are not UTF-8 become the engine's byte strings, which a program
//! may pass on as headers or key and not as JSON.

use super::json;
use crate::batch::Headers;
use hapax_kafka::record::EncodedHeaders;
use jaq_json::{Map, Val};

/// Bytes as a text string where they are UTF-8, else as a byte string.
pub(super) fn text(bytes: &[u8]) -> Val {
    match std::str::from_utf8(bytes) {
        Ok(text) => Val::from(text.to_owned()),
        Err(_) => Val::byte_str(bytes.to_vec()),
    }
}

/// A record's headers as a list of `{key, value}`.
pub(super) fn decode(headers: Headers<'_>) -> Val {
    let encoded = EncodedHeaders::parse(headers.count, headers.encoded)
        .expect("a batch has only headers that were walked when they were read or written");
    let field = |name: &str, value| (Val::from(name.to_owned()), value);
    encoded
        .iter()
        .map(|(key, value)| {
            Val::obj(Map::from_iter([field("key", text(key)), field("value", value.map_or(Val::Null, text))]))
        })
        .collect()
}

/// Appends headers in Kafka's encoding; answers their number.
pub(super) fn encode(headers: &Val, out: &mut Vec<u8>) -> Result<u32, String> {
    let refused = |value: &Val| {
        format!(
            "headers: the program must yield an object of strings and nulls, or a list of {{key, value}}, not {}",
            json::excerpt(value)
        )
    };
    let mut put = |key: &Val, value: &Val| {
        match (bytes(key), value, bytes(value)) {
            (Some(key), Val::Null, _) => put_header(out, key, None),
            (Some(key), _, Some(value)) => put_header(out, key, Some(value)),
            _ => return Err(refused(headers)),
        }
        Ok(())
    };
    let count = match headers {
        Val::Obj(fields) => {
            fields.iter().try_for_each(|(key, value)| put(key, value))?;
            fields.len()
        }
        Val::Arr(list) => {
            let (key, value) = (Val::from("key".to_owned()), Val::from("value".to_owned()));
            for header in list.iter() {
                let Val::Obj(fields) = header else { return Err(refused(headers)) };
                let name = fields.get(&key).ok_or_else(|| refused(headers))?;
                put(name, fields.get(&value).unwrap_or(&Val::Null))?;
            }
            list.len()
        }
        other => return Err(refused(other)),
    };
    u32::try_from(count).map_err(|_| refused(headers))
}

fn bytes(value: &Val) -> Option<&[u8]> {
    match value {
        Val::TStr(text) | Val::BStr(text) => Some(text),
        _ => None,
    }
}

fn put_header(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    put_length(out, Some(key.len()));
    out.extend_from_slice(key);
    put_length(out, value.map(<[u8]>::len));
    out.extend_from_slice(value.unwrap_or_default());
}

/// A zigzag varint; none (null) is -1.
fn put_length(out: &mut Vec<u8>, length: Option<usize>) {
    let mut rest = length.map_or(1, |length| (length as u64) << 1);
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
