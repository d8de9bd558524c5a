//! Encoder and decoder against each other, and the decoder against hostile bytes.

use bytes::Bytes;

use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    timestamp: i64,
}

fn push(builder: &mut BatchBuilder, record: &Owned) -> Result<usize, RecordError> {
    let headers: Vec<Header<'_>> = record.headers.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
    let record = RecordRef {
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: Headers::List(&headers),
        timestamp: record.timestamp,
    };
    let took = builder.push(&record)?;
    assert!(took <= record.size_bound());
    Ok(took)
}

fn read(records: &Records) -> Vec<Owned> {
    let own = |bytes: &[u8]| bytes.to_vec();
    records
        .views()
        .iter()
        .map(|view| Owned {
            key: records.key(view).map(own),
            value: records.value(view).map(own),
            headers: records.headers(view).map(|(k, v)| (own(k), v.map(own))).collect(),
            timestamp: view.timestamp,
        })
        .collect()
}

fn random_field(rng: &mut fastrand::Rng, most: usize) -> Option<Vec<u8>> {
    match rng.u8(0..10) {
        0 => None,
        1 => Some(Vec::new()),
        _ => Some((0..rng.usize(0..most)).map(|_| rng.u8(b'a'..b'h')).collect()),
    }
}

fn random_record(rng: &mut fastrand::Rng) -> Owned {
    let headers = (0..rng.usize(0..8).saturating_sub(4))
        .map(|_| (random_field(rng, 4).unwrap_or_default(), random_field(rng, 20)))
        .collect();
    Owned {
        key: random_field(rng, 30),
        value: random_field(rng, 200),
        headers,
        timestamp: 1_700_000_000_000 + rng.i64(-100_000..100_000),
    }
}

fn random_records(seed: u64, count: usize) -> Vec<Owned> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random_record(&mut rng)).collect()
}

fn seal(records: &[Owned], compression: Compression) -> SealedBatch {
    let mut builder = BatchBuilder::new();
    for record in records {
        push(&mut builder, record).unwrap();
    }
    builder.seal(compression, &mut Compressor::new()).unwrap()
}

const STAMP: Stamp = Stamp { producer_id: 4711, producer_epoch: 12, base_sequence: 99, transactional: true };

/// The wire bytes of a batch as if a broker had appended it at `offset`, with `change` applied before the checksum.
fn rewritten(batch: &Bytes, offset: i64, change: impl FnOnce(&mut [u8])) -> Bytes {
    let mut bytes = batch.to_vec();
    bytes[..8].copy_from_slice(&offset.to_be_bytes());
    change(&mut bytes);
    let crc = crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

fn only(bytes: &Bytes) -> RawBatch {
    let mut batches = Batches::new(bytes.clone());
    let batch = batches.next().unwrap().unwrap();
    assert!(batches.next().is_none());
    batch
}

fn decode(bytes: &Bytes) -> Result<Records, RecordError> {
    RawBatch::parse(bytes.clone())?.decode(&mut Decompressor::new(1 << 24))
}

#[test]
fn a_hundred_thousand_random_records_come_back_in_every_codec() {
    let records = random_records(2, 100_000);
    for compression in Compression::ALL {
        let (mut builder, mut compressor) = (BatchBuilder::new(), Compressor::new());
        let (mut written, mut seen) = (RecordDigest::new(), RecordDigest::new());
        let mut wire = Vec::new();
        let mut seal = |builder: &mut BatchBuilder| {
            let sealed = builder.seal(compression, &mut compressor).unwrap();
            let bytes = sealed.stamp(STAMP).to_bytes();
            assert_eq!(bytes.len(), sealed.len());
            wire.extend_from_slice(&bytes);
        };
        for record in &records {
            if builder.len() > 100_000 {
                seal(&mut builder);
            }
            push(&mut builder, record).unwrap();
            written.update(builder.last_body());
        }
        seal(&mut builder);

        let mut decompressor = Decompressor::new(1 << 20);
        let mut back = Vec::new();
        let mut views = Vec::new();
        for batch in Batches::new(wire.into()) {
            let batch = batch.unwrap();
            batch.verify_crc().unwrap();
            assert_eq!(batch.header().compression(), Ok(compression));
            let decoded = batch.decode_reusing(&mut decompressor, views).unwrap();
            seen.update_all(&decoded);
            back.extend(read(&decoded));
            views = decoded.into_parts().1;
        }
        assert!(back == records, "{compression}");
        assert_eq!(written.value(), seen.value());
    }
}

#[test]
fn the_header_carries_identity_sequence_and_times() {
    let mut records = random_records(3, 3);
    for (record, timestamp) in records.iter_mut().zip([50, 70, 60]) {
        record.timestamp = timestamp;
    }
    let bytes = seal(&records, Compression::Lz4).stamp(STAMP).to_bytes();
    let header = *only(&bytes).header();
    assert_eq!((header.base_offset, header.partition_leader_epoch), (0, -1));
    assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (4711, 12, 99));
    assert_eq!((header.record_count, header.last_offset_delta, header.next_offset()), (3, 2, 3));
    assert_eq!((header.base_timestamp, header.max_timestamp), (50, 70));
    assert_eq!(header.attributes.bits(), 0x13);
    let plain = only(&seal(&records, Compression::None).stamp(Stamp::NONE).to_bytes());
    assert_eq!(plain.header().attributes.bits(), 0);
    assert_eq!((plain.header().producer_id, plain.header().base_sequence), (-1, -1));
}

#[test]
fn a_new_stamp_changes_the_identity_and_nothing_else() {
    let sealed = seal(&random_records(4, 50), Compression::Zstd);
    let first = sealed.stamp(STAMP).to_bytes();
    let second = sealed.stamp(Stamp { producer_epoch: 13, base_sequence: 0, ..STAMP }).to_bytes();
    only(&second).verify_crc().unwrap();
    assert_eq!(only(&second).header().producer_epoch, 13);
    assert_eq!(first[..17], second[..17]);
    assert_ne!(first[17..21], second[17..21]);
    assert_eq!(first[57..], second[57..]);
}

#[test]
fn nulls_empties_duplicates_and_extreme_times_are_kept() {
    let header =
        |key: &str, value: Option<&str>| (key.as_bytes().to_vec(), value.map(|v| v.as_bytes().to_vec()));
    let none = Owned { key: None, value: None, headers: vec![], timestamp: i64::MIN };
    let records = vec![
        none.clone(),
        Owned { key: Some(vec![]), value: Some(vec![]), timestamp: i64::MAX, ..none.clone() },
        Owned { key: Some(vec![0xff, 0]), timestamp: -1, ..none.clone() },
        Owned {
            value: Some(vec![7; 100_000]),
            headers: vec![header("a", None), header("a", Some("1")), header("", Some("")), header("a", None)],
            timestamp: 0,
            ..none
        },
    ];
    for compression in Compression::ALL {
        let decoded = decode(&seal(&records, compression).stamp(STAMP).to_bytes()).unwrap();
        assert_eq!(read(&decoded), records);
        let offsets: Vec<i64> = decoded.views().iter().map(|view| view.offset).collect();
        assert_eq!(offsets, [0, 1, 2, 3]);
    }
}

#[test]
fn records_passed_on_encoded_are_the_same_bytes() {
    let records = random_records(5, 200);
    let decoded = decode(&seal(&records, Compression::Gzip).stamp(STAMP).to_bytes()).unwrap();
    let (mut by_body, mut by_headers) = (BatchBuilder::new(), BatchBuilder::new());
    for view in decoded.views() {
        by_body.push_body(decoded.body(view), view.timestamp).unwrap();
        let headers = decoded.encoded_headers(view);
        let again = EncodedHeaders::parse(headers.count(), headers.as_bytes()).unwrap();
        let record = RecordRef {
            key: decoded.key(view),
            value: decoded.value(view),
            headers: Headers::Encoded(again),
            timestamp: view.timestamp,
        };
        by_headers.push(&record).unwrap();
        assert_eq!(by_headers.last_body(), decoded.body(view));
    }
    let expected = seal(&records, Compression::None).stamp(STAMP).to_bytes();
    for mut builder in [by_body, by_headers] {
        let sealed = builder.seal(Compression::None, &mut Compressor::new()).unwrap();
        assert_eq!(sealed.stamp(STAMP).to_bytes(), expected);
    }
}

#[test]
fn bytes_that_are_no_headers_are_refused() {
    for (count, bytes) in
        [(1, &[][..]), (1, &[1, 1]), (1, &[2, b'a']), (0, &[0]), (2, &[0, 1]), (1, &[3, 1]), (9, &[0])]
    {
        let parsed = EncodedHeaders::parse(count, bytes);
        assert!(matches!(parsed, Err(RecordError::MalformedHeaders { .. })), "{count} {bytes:?}");
    }
    let parsed = EncodedHeaders::parse(2, &[0, 1, 2, b'k', 0]).unwrap();
    assert_eq!(parsed.iter().collect::<Vec<_>>(), [(&b""[..], None), (b"k", Some(&b""[..]))]);
}

#[test]
fn an_uncompressed_batch_is_not_copied() {
    let bytes = seal(&random_records(6, 20), Compression::None).stamp(STAMP).to_bytes();
    let decoded = decode(&bytes).unwrap();
    assert_eq!(decoded.slab().as_ptr(), bytes[BATCH_HEADER_BYTES..].as_ptr());
}

#[test]
fn a_batch_splits_down_to_single_records_and_no_further() {
    let records = random_records(7, 37);
    for compression in Compression::ALL {
        let mut compressor = Compressor::new();
        let mut whole = RecordDigest::new();
        whole.update_all(&decode(&seal(&records, compression).stamp(STAMP).to_bytes()).unwrap());
        let (mut queue, mut back, mut pieces) =
            (vec![seal(&records, compression)], Vec::new(), RecordDigest::new());
        while let Some(batch) = queue.pop() {
            match batch.split(&mut compressor).unwrap() {
                Some((first, second)) => {
                    assert_eq!(first.count() + second.count(), batch.count());
                    assert_eq!(first.compression(), compression);
                    queue.extend([second, first]);
                }
                None => {
                    assert_eq!(batch.count(), 1);
                    let decoded = decode(&batch.stamp(STAMP).to_bytes()).unwrap();
                    assert_eq!(decoded.views()[0].offset, 0);
                    pieces.update_all(&decoded);
                    back.extend(read(&decoded));
                }
            }
        }
        assert_eq!(back, records);
        assert_eq!(pieces.value(), whole.value());
    }
}

#[test]
fn the_digest_begins_at_the_key_length() {
    let mut builder = BatchBuilder::new();
    let mut digest = RecordDigest::new();
    for timestamp in [5, 900_000] {
        let record =
            RecordRef { key: Some(b"k"), value: None, headers: Headers::List(&[(b"h", None)]), timestamp };
        builder.push(&record).unwrap();
        digest.update(builder.last_body());
    }
    assert_eq!(digest.value(), crc32c(&[2, b'k', 1, 2, 2, b'h', 1, 2, b'k', 1, 2, 2, b'h', 1]));
    assert_eq!(RecordDigest::new().value(), 0);
}

#[test]
fn a_builder_serves_the_next_batch_and_says_when_it_is_full() {
    let (mut builder, mut compressor) = (BatchBuilder::new(), Compressor::new());
    assert!(builder.seal(Compression::None, &mut compressor).is_none());
    let record = RecordRef { value: Some(&[1; 100]), timestamp: 9, ..RecordRef::default() };
    assert!(builder.fits(1 << 20, 200), "an empty batch takes a record of any size");
    builder.push(&record).unwrap();
    assert!(builder.fits(record.size_bound(), builder.len() + record.size_bound()));
    assert!(!builder.fits(record.size_bound(), builder.len() + record.size_bound() - 1));
    assert!(!builder.fits(usize::MAX, usize::MAX));
    let first = builder.seal(Compression::None, &mut compressor).unwrap();
    assert_eq!((builder.count(), builder.len()), (0, BATCH_HEADER_BYTES));
    builder.push(&RecordRef { timestamp: 3, ..record }).unwrap();
    let second = builder.seal(Compression::None, &mut compressor).unwrap();
    assert_eq!((first.count(), first.max_timestamp()), (1, 9));
    assert_eq!((second.count(), second.max_timestamp()), (1, 3));
}

#[test]
fn a_cut_record_set_gives_its_whole_batches_and_ends() {
    let first = seal(&random_records(8, 5), Compression::None).stamp(STAMP).to_bytes();
    let second = seal(&random_records(9, 5), Compression::Zstd).stamp(STAMP).to_bytes();
    let both = Bytes::from([&first[..], &second].concat());
    for cut in 0..both.len() {
        let mut batches = Batches::new(both.slice(..cut));
        let whole: Vec<RawBatch> = batches.by_ref().map(Result::unwrap).collect();
        assert_eq!(whole.len(), usize::from(cut >= first.len()), "cut at {cut}");
        let tail = cut - if cut >= first.len() { first.len() } else { 0 };
        let expected = if cut >= first.len() { second.len() } else { first.len() };
        assert_eq!(batches.cut_batch_bytes(), (tail >= 17).then_some(expected), "cut at {cut}");
    }
    assert_eq!(Batches::new(both).map(Result::unwrap).count(), 2);
}

#[test]
fn a_batch_cut_anywhere_is_an_error_and_no_panic() {
    for compression in Compression::ALL {
        let bytes = seal(&random_records(10, 20), compression).stamp(STAMP).to_bytes();
        for cut in 0..bytes.len() {
            let mut short = bytes.slice(..cut).to_vec();
            if cut >= 12 {
                // the batch says the length that it has, so that only its records are cut
                short[8..12].copy_from_slice(&(cut as i32 - 12).to_be_bytes());
            }
            assert!(decode(&short.into()).is_err(), "{compression} cut at {cut}");
        }
    }
}

#[test]
fn every_flipped_bit_is_seen_by_the_checksum() {
    let bytes = seal(&random_records(11, 4), Compression::None).stamp(STAMP).to_bytes();
    for bit in 17 * 8..bytes.len() * 8 {
        let mut bad = bytes.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        match RawBatch::parse(bad.into()) {
            Ok(batch) => {
                assert!(matches!(batch.verify_crc(), Err(RecordError::CrcMismatch { .. })), "bit {bit}")
            }
            Err(error) => assert!(matches!(error, RecordError::MalformedBatch { .. }), "bit {bit}: {error}"),
        }
    }
}

#[test]
fn damage_that_the_checksum_does_not_see_neither_panics_nor_reserves() {
    let mut rng = fastrand::Rng::with_seed(12);
    for compression in Compression::ALL {
        let bytes = seal(&random_records(13, 30), compression).stamp(STAMP).to_bytes();
        let mut decompressor = Decompressor::new(1 << 20);
        for _ in 0..5000 {
            let mut bad = bytes.to_vec();
            for _ in 0..rng.usize(1..5) {
                let at = if rng.bool() { rng.usize(12..90) } else { rng.usize(12..bad.len()) };
                bad[at] = rng.u8(..);
            }
            if let Ok(batch) = RawBatch::parse(bad.into()) {
                drop(batch.control());
                if let Ok(records) = batch.decode(&mut decompressor) {
                    assert!(records.views().len() < 30_000);
                    read(&records);
                }
            }
        }
    }
}

#[test]
fn hostile_counts_and_lengths_are_refused_before_memory_is_reserved() {
    let bytes = seal(&random_records(14, 3), Compression::None).stamp(STAMP).to_bytes();
    let with =
        |at: usize, value: &[u8]| rewritten(&bytes, 5, |b| b[at..at + value.len()].copy_from_slice(value));
    let huge = i32::MAX.to_be_bytes();
    let mut counted = with(57, &huge).to_vec();
    counted[23..27].copy_from_slice(&huge);
    for bad in [
        with(57, &huge),
        counted.into(),
        with(57, &[0xff; 4]),
        with(23, &[0xff; 4]),
        with(61, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
    ] {
        assert!(decode(&bad).is_err());
    }
    assert!(decode(&rewritten(&bytes, i64::MAX - 1, |_| ())).is_err());
    assert!(decode(&rewritten(&bytes, -1, |_| ())).is_err());
    for length in [-1, 0, 48, i32::MIN] {
        let bad = with(8, &length.to_be_bytes());
        let error = Batches::new(bad).next().unwrap().unwrap_err();
        assert!(matches!(error, RecordError::MalformedBatch { offset: 5, .. }), "{length}: {error}");
    }
    let mut endless = Batches::new(with(8, &huge));
    let error = endless.next().unwrap().unwrap_err();
    assert!(matches!(error, RecordError::BatchTooLarge { offset: 5, .. }), "{error}");
    assert_eq!((endless.next().is_none(), endless.cut_batch_bytes()), (true, None));
}

#[test]
fn records_that_contradict_their_batch_are_refused() {
    let record = Owned { key: None, value: Some(b"v".to_vec()), headers: vec![], timestamp: 0 };
    let bytes = seal(&vec![record; 2], Compression::None).stamp(STAMP).to_bytes();
    // a record here: length 14, attributes, time delta, offset delta, key -1, value length 1, 'v', no headers
    assert_eq!(bytes[61..], [14, 0, 0, 0, 1, 2, b'v', 0, 14, 0, 0, 2, 1, 2, b'v', 0]);
    for (at, value, index) in [
        (61, 12, 0),
        (61, 16, 0),
        (64, 6, 0),
        (65, 3, 0),
        (66, 8, 0),
        (68, 2, 0),
        (68, 1, 0),
        (72, 0, 1),
        (72, 4, 1),
    ] {
        let error = decode(&rewritten(&bytes, 0, |b| b[at] = value)).unwrap_err();
        assert!(
            matches!(error, RecordError::MalformedRecord { index: i, .. } if i == index),
            "{at} {value}: {error}"
        );
    }
    let left_over = rewritten(&bytes, 0, |b| b[60] = 1);
    assert!(matches!(decode(&left_over), Err(RecordError::MalformedBatch { .. })));
}

#[test]
fn older_formats_and_unknown_codecs_are_named() {
    let bytes = seal(&random_records(15, 3), Compression::None).stamp(STAMP).to_bytes();
    let old = rewritten(&bytes, 77, |b| b[16] = 1);
    let mut batches = Batches::new(old);
    let error = batches.next().unwrap().unwrap_err();
    assert_eq!(error, RecordError::UnsupportedMagic { offset: 77, magic: 1 });
    assert!(batches.next().is_none(), "an error ends the iteration");
    let unknown = rewritten(&bytes, 77, |b| b[22] |= 6);
    assert_eq!(decode(&unknown).unwrap_err(), RecordError::UnknownCompression { offset: 77, code: 6 });
}

#[test]
fn compacted_and_empty_batches_keep_their_next_offset() {
    let records = random_records(16, 3);
    let mut bytes = seal(&records, Compression::None).stamp(STAMP).to_bytes();
    bytes = rewritten(&bytes, 1000, |b| b[23..27].copy_from_slice(&9i32.to_be_bytes()));
    let batch = only(&bytes);
    assert_eq!((batch.header().last_offset(), batch.header().next_offset()), (1009, 1010));
    let offsets: Vec<i64> = decode(&bytes).unwrap().views().iter().map(|view| view.offset).collect();
    assert_eq!(offsets, [1000, 1001, 1002]);

    let empty = rewritten(&bytes.slice(..61), 1000, |b| {
        b[8..12].copy_from_slice(&49i32.to_be_bytes());
        b[57..61].copy_from_slice(&[0; 4]);
    });
    let batch = only(&empty);
    batch.verify_crc().unwrap();
    assert_eq!(batch.header().next_offset(), 1010);
    assert!(batch.decode(&mut Decompressor::default()).unwrap().is_empty());
}

#[test]
fn log_append_time_wins_and_the_delete_horizon_does_not() {
    let mut records = random_records(17, 3);
    for (record, timestamp) in records.iter_mut().zip([50, 70, 60]) {
        record.timestamp = timestamp;
    }
    let bytes = seal(&records, Compression::Snappy).stamp(STAMP).to_bytes();
    let times =
        |bytes: &Bytes| decode(bytes).unwrap().views().iter().map(|v| v.timestamp).collect::<Vec<_>>();
    assert_eq!(times(&rewritten(&bytes, 0, |b| b[22] |= 0x08)), [70, 70, 70]);
    let horizon = rewritten(&bytes, 0, |b| b[22] |= 0x40);
    assert_eq!(only(&horizon).header().delete_horizon(), Some(50));
    assert_eq!(times(&horizon), [50, 70, 60]);
    assert_eq!(only(&bytes).header().delete_horizon(), None);
}

#[test]
fn a_control_batch_is_a_marker_and_a_cleaned_one_is_none() {
    let marker = Owned {
        key: Some(vec![0, 0, 0, 1]),
        value: Some(vec![0, 0, 0, 0, 0, 3]),
        headers: vec![],
        timestamp: 0,
    };
    let bytes = seal(&[marker], Compression::None).stamp(Stamp { base_sequence: -1, ..STAMP }).to_bytes();
    assert_eq!(only(&bytes).control(), Ok(None), "records that look like a marker are records");
    let control = rewritten(&bytes, 8, |b| b[22] |= 0x20);
    let expected = ControlRecord { kind: ControlKind::Commit, version: 0, coordinator_epoch: Some(3) };
    assert_eq!(only(&control).control(), Ok(Some(expected)));
    let cleaned = rewritten(&control.slice(..61), 8, |b| {
        b[8..12].copy_from_slice(&49i32.to_be_bytes());
        b[57..61].copy_from_slice(&[0; 4]);
    });
    assert_eq!(only(&cleaned).control(), Ok(None));
    let damaged = rewritten(&control, 8, |b| b[66] = 0xff);
    assert!(only(&damaged).control().is_err());
}

#[test]
fn a_batch_larger_than_the_readers_limit_is_refused_by_name() {
    let record = Owned { key: None, value: Some(vec![0; 1 << 20]), headers: vec![], timestamp: 0 };
    let bytes = rewritten(&seal(&[record], Compression::Lz4).stamp(STAMP).to_bytes(), 40, |_| ());
    let error = only(&bytes).decode(&mut Decompressor::new(1 << 20)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "decompressing the batch at offset 40 (lz4) failed: it holds more than 1048576 bytes"
    );
    assert!(only(&bytes).decode(&mut Decompressor::new((1 << 20) + 100)).is_ok());
}
