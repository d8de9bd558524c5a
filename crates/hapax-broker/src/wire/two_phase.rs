//! InitProducerId 6, the version of two-phase commit (KIP-939). Kafka advertises it only with its unstable versions, and
//! the message crate leaves it out for that reason: the fields of version 5, then the two switches, then the tagged fields.

use super::Malformed;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::{
    messages::InitProducerIdRequest,
    protocol::{Decodable, Encodable},
};

/// The version.
pub(super) const VERSION: i16 = 6;

/// What follows the transactional id in version 5: time-out, producer id and epoch.
const AFTER_ID: usize = 4 + 8 + 2;

/// Decodes the body.
pub(super) fn decode(body: &mut Bytes) -> Result<InitProducerIdRequest, Malformed> {
    let fields = fields_of(body).filter(|fields| body.len() >= fields + 2).ok_or_else(cut)?;
    let (enable, keep) = (body[fields] != 0, body[fields + 1] != 0);
    let mut as_before = BytesMut::with_capacity(body.len());
    as_before.put_slice(&body[..fields]);
    as_before.put_slice(&body[fields + 2..]);
    let mut as_before = as_before.freeze();
    let request = InitProducerIdRequest::decode(&mut as_before, VERSION - 1)
        .map_err(|error| Malformed(error.to_string()))?;
    body.advance(body.len() - as_before.len());
    Ok(request.with_enable_2_pc(enable).with_keep_prepared_txn(keep))
}

/// Encodes the body, as a client does.
pub(super) fn encode(request: &InitProducerIdRequest, into: &mut BytesMut) -> Result<(), Malformed> {
    let plain = request.clone().with_enable_2_pc(false).with_keep_prepared_txn(false);
    let mut as_before = BytesMut::new();
    plain.encode(&mut as_before, VERSION - 1).map_err(|error| Malformed(error.to_string()))?;
    let fields = fields_of(&as_before).ok_or_else(cut)?;
    into.put_slice(&as_before[..fields]);
    into.put_u8(request.enable_2_pc.into());
    into.put_u8(request.keep_prepared_txn.into());
    into.put_slice(&as_before[fields..]);
    Ok(())
}

fn cut() -> Malformed {
    Malformed("the fields of InitProducerId are not all there".to_owned())
}

/// Bytes of the fields before the switches, if they are all there.
fn fields_of(body: &[u8]) -> Option<usize> {
    let mut length = 0_usize;
    let mut read = 0;
    loop {
        let byte = *body.get(read)?;
        length |= usize::from(byte & 0x7f) << (7 * read);
        read += 1;
        if byte & 0x80 == 0 {
            break;
        }
        if read == 5 {
            return None;
        }
    }
    // A compact string counts one more than it has; 0 stands for null.
    let end = read.checked_add(length.saturating_sub(1))?.checked_add(AFTER_ID)?;
    (end <= body.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::{messages::TransactionalId, protocol::StrBytes};

    #[test]
    fn the_switches_stand_before_the_tagged_fields() {
        let id = TransactionalId(StrBytes::from_string("x".repeat(200)));
        for transactional_id in [None, Some(id)] {
            let request = InitProducerIdRequest::default()
                .with_transactional_id(transactional_id)
                .with_producer_id(7.into())
                .with_enable_2_pc(true);
            let mut bytes = BytesMut::new();
            encode(&request, &mut bytes).unwrap();
            assert_eq!(bytes[bytes.len() - 3..], [1, 0, 0]);
            let mut body = bytes.freeze();
            assert_eq!(decode(&mut body.clone()).unwrap(), request);
            for length in 0..body.len() {
                assert!(decode(&mut body.slice(..length)).is_err());
            }
            assert!(decode(&mut body).is_ok() && body.is_empty());
        }
    }
}
