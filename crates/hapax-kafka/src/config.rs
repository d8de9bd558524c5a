//! Settings of a client, and the reading of bootstrap lists.

use crate::ClientError;
use std::time::Duration;

/// How to reach one cluster, and how long to be patient with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Brokers to ask first: host and port. The rest of the cluster is learned from them.
    pub bootstrap: Vec<(String, u16)>,
    /// Name that brokers log and count quotas under.
    pub client_id: String,
    /// How long one request may take from the call until its answer is read (30 s).
    pub request_timeout: Duration,
    /// How long a connection may take to open, its ApiVersions exchange included (10 s).
    pub connect_timeout: Duration,
    /// First wait before something is tried again (100 ms); doubles up to [`ClientConfig::retry_backoff_max`].
    pub retry_backoff: Duration,
    /// Longest wait before something is tried again (1 s). Every wait is shortened by up to a half, at random.
    pub retry_backoff_max: Duration,
    /// Metadata older than this is fetched again even if nothing failed (5 min).
    pub metadata_max_age: Duration,
    /// A connection without requests for this long is closed (9 min: before the broker does it at 10).
    pub idle_timeout: Duration,
}

impl ClientConfig {
    /// The defaults for a bootstrap list.
    pub fn new(bootstrap: Vec<(String, u16)>) -> Self {
        Self {
            bootstrap,
            client_id: "hapax".to_owned(),
            request_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(1),
            metadata_max_age: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(540),
        }
    }

    /// Reads `host:port,host:port`; an IPv6 address stands in brackets: `[::1]:9092`.
    ///
    /// # Errors
    /// [`ClientError::Config`]: the list is empty, or an entry has no host or no port between 1 and 65535.
    pub fn parse_bootstrap(list: &str) -> Result<Vec<(String, u16)>, ClientError> {
        let entries: Vec<_> = list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
        if entries.is_empty() {
            return Err(ClientError::Config(
                "the bootstrap list is empty; write host:port,host:port".to_owned(),
            ));
        }
        entries.into_iter().map(parse_entry).collect()
    }
}

fn parse_entry(entry: &str) -> Result<(String, u16), ClientError> {
    let bad = |why: &str| {
        ClientError::Config(format!(
            "bootstrap address {entry:?} {why}; write host:port, or [address]:port for IPv6"
        ))
    };
    let (host, port) = entry.rsplit_once(':').ok_or_else(|| bad("has no port"))?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or_else(|| bad("has an unclosed bracket"))?,
        None if host.contains(':') => return Err(bad("is an IPv6 address without brackets")),
        None => host,
    };
    if host.is_empty() || host.contains(['/', ' ', '@']) {
        return Err(bad("has no usable host"));
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok((host.to_owned(), port)),
        _ => Err(bad("has no port between 1 and 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bootstrap_lists_are_read() {
        let read = ClientConfig::parse_bootstrap(" a:1, b.example:65535 ,[::1]:9092,").unwrap();
        assert_eq!(read, [("a".to_owned(), 1), ("b.example".to_owned(), 65535), ("::1".to_owned(), 9092)]);
    }

    #[test]
    fn unusable_bootstrap_entries_are_named() {
        for bad in [
            "",
            " , ",
            "a",
            "a:",
            ":9092",
            "a:0",
            "a:65536",
            "::1:9092",
            "[::1:9092",
            "plaintext://a:1",
            "a b:1",
        ] {
            let error = ClientConfig::parse_bootstrap(bad).unwrap_err();
            assert!(error.to_string().contains("write host:port"), "{bad}: {error}");
        }
    }
}
