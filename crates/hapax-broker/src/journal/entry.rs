//! An input as bytes.

use crate::{
    state::{Call, Input, Millis, NodeId, Step, Ticket},
    wire::frame,
};
use bytes::{Buf, BufMut, Bytes};
use kafka_protocol::messages::ApiKey;

const REQUEST: u8 = 1;
const GONE: u8 = 2;
const STEP: u8 = 3;
const TIME: u8 = 4;
const DIGEST: u8 = 5;

/// What is kept: an input, or what the machine must be after all of them.
pub(crate) enum Entry<'a> {
    /// A request, with its body as it came.
    Request(&'a Call, ApiKey, &'a Bytes),
    /// Nobody waits for these any more.
    Gone(&'a [Ticket]),
    /// A step.
    Step(&'a Step),
    /// Time has come so far that something happened by itself.
    Time,
    /// The machine's digest so far.
    Digest(u64),
}

/// What was kept.
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is made, once for each record")]
pub(crate) enum Kept {
    /// An input, and when it came.
    Input(Millis, Input),
    /// What the machine's digest was.
    Digest(u64),
}

impl Entry<'_> {
    /// Writes the payload of the entry's record.
    pub(crate) fn encode(&self, time: Millis, into: &mut Vec<u8>) {
        match self {
            Self::Request(call, key, body) => {
                into.put_u8(REQUEST);
                into.put_i64(time);
                into.put_u64(call.ticket.0);
                into.put_i32(call.node.0);
                into.put_i16(*key as i16);
                into.put_i16(call.version);
                match &call.client_id {
                    Some(id) => {
                        into.put_i32(i32::try_from(id.len()).unwrap_or(0));
                        into.put_slice(id.as_bytes());
                    }
                    None => into.put_i32(-1),
                }
                into.put_slice(body);
            }
            Self::Gone(tickets) => {
                into.put_u8(GONE);
                into.put_i64(time);
                tickets.iter().for_each(|ticket| into.put_u64(ticket.0));
            }
            Self::Step(step) => {
                into.put_u8(STEP);
                into.put_i64(time);
                into.put_slice(&serde_json::to_vec(step).expect("a step is plain data"));
            }
            Self::Time => {
                into.put_u8(TIME);
                into.put_i64(time);
            }
            Self::Digest(digest) => {
                into.put_u8(DIGEST);
                into.put_i64(time);
                into.put_u64(*digest);
            }
        }
    }
}

/// Reads a record's payload; says what is wrong with one that is none.
pub(crate) fn decode(mut payload: Bytes) -> Result<Kept, String> {
    let short = |_| "it ends too early".to_owned();
    let kind = payload.try_get_u8().map_err(short)?;
    let time = payload.try_get_i64().map_err(short)?;
    let input = match kind {
        REQUEST => {
            let ticket = Ticket(payload.try_get_u64().map_err(short)?);
            let node = NodeId(payload.try_get_i32().map_err(short)?);
            let key = payload.try_get_i16().map_err(short)?;
            let version = payload.try_get_i16().map_err(short)?;
            let client_id = match usize::try_from(payload.try_get_i32().map_err(short)?) {
                Err(_) => None,
                Ok(length) if length <= payload.len() => {
                    let id = payload.split_to(length).to_vec();
                    Some(String::from_utf8(id).map_err(|_| "a client id is no text".to_owned())?)
                }
                Ok(_) => return Err("a client id is longer than its record".into()),
            };
            let key = ApiKey::try_from(key).map_err(|()| format!("request {key} is not known"))?;
            let request = frame::body_of(key, version, payload)
                .map_err(|error| format!("{key:?} in version {version}: {error}"))?;
            Input::Request(Call { ticket, node, version, client_id }, request)
        }
        GONE => {
            let mut tickets = Vec::with_capacity(payload.len() / 8);
            while payload.has_remaining() {
                tickets.push(Ticket(payload.try_get_u64().map_err(short)?));
            }
            Input::Gone(tickets)
        }
        STEP => Input::Step(serde_json::from_slice(&payload).map_err(|error| error.to_string())?),
        TIME => Input::Tick,
        DIGEST => return Ok(Kept::Digest(payload.try_get_u64().map_err(short)?)),
        kind => return Err(format!("kind {kind} is not known")),
    };
    Ok(Kept::Input(time, input))
}
