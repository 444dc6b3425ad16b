//! What a server says about being asked again: `grpc-retry-pushback-ms`.

use std::time::Duration;

use http::HeaderMap;
use tonic::metadata::{MetadataMap, MetadataValue};

/// What a server says, with the metadata `grpc-retry-pushback-ms` of a failed call, about being asked again
/// ([gRFC A6](https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback)).
///
/// A server writes it, a chain obeys it:
///
/// ```
/// use std::time::Duration;
/// use steadfast::{Classified, Verdict, tonic::Pushback};
/// use tonic::Status;
///
/// let mut busy = Status::resource_exhausted("come back later");
/// Pushback::After(Duration::from_millis(250)).write(busy.metadata_mut());
/// assert_eq!(busy.verdict(), Verdict::Throttled { retry_after: Some(Duration::from_millis(250)) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pushback {
    /// Not before this time has passed; zero means at once.
    After(Duration),
    /// Not at all.
    Never,
}

impl Pushback {
    /// What the metadata of a status or a response asks for; `None` if it asks for nothing.
    ///
    /// The value is a whole number of milliseconds of at most 32 bits. A negative one, one that makes no sense, and more
    /// than one mean [`Never`](Pushback::Never): the server wanted to hold the client back, and did not say for how long.
    #[must_use]
    pub fn read(metadata: &MetadataMap) -> Option<Pushback> {
        Pushback::of_headers(metadata.as_ref())
    }

    /// Asks for it, instead of what the metadata asked for before. Times are rounded up to whole milliseconds, and cut off at
    /// 24 days, which is the longest that the metadata can say.
    pub fn write(self, metadata: &mut MetadataMap) {
        let millis = match self {
            Pushback::After(wait) => millis_rounded_up(wait),
            Pushback::Never => -1,
        };
        metadata.insert(PUSHBACK, MetadataValue::from(millis));
    }

    pub(super) fn of_headers(headers: &HeaderMap) -> Option<Pushback> {
        let mut values = headers.get_all(PUSHBACK).iter();
        let only = values.next()?;
        let millis = match values.next() {
            None => only.to_str().ok().and_then(|text| text.parse::<i32>().ok()),
            Some(_) => None,
        };
        Some(match millis.map(u64::try_from) {
            Some(Ok(millis)) => Pushback::After(Duration::from_millis(millis)),
            Some(Err(_)) | None => Pushback::Never,
        })
    }
}

fn millis_rounded_up(wait: Duration) -> i32 {
    let millis = wait.as_nanos().div_ceil(1_000_000);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

const PUSHBACK: &str = "grpc-retry-pushback-ms";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn asked(values: &[&[u8]]) -> Option<Pushback> {
        let values = values.iter().map(|value| HeaderValue::from_bytes(value).unwrap());
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PUSHBACK, value);
        }
        Pushback::of_headers(&headers)
    }

    #[test]
    fn pushback_negative_or_garbage() {
        let never: [&[u8]; 9] = [b"-1", b"abc", b"", b"2147483648", b"-2147483649", b"1.5", b" 1", b"0x10", b"\xff"];
        for value in never {
            assert_eq!(asked(&[value]), Some(Pushback::Never), "{:?}", String::from_utf8_lossy(value));
        }
        for (value, millis) in [(&b"0"[..], 0), (b"250", 250), (b"2147483647", 2_147_483_647)] {
            assert_eq!(asked(&[value]), Some(Pushback::After(Duration::from_millis(millis))));
        }
        assert_eq!(asked(&[b"250", b"250"]), Some(Pushback::Never), "which of them?");
        assert_eq!(asked(&[]), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut metadata = MetadataMap::new();
        let mut again = |pushback: Pushback| {
            pushback.write(&mut metadata);
            Pushback::read(&metadata)
        };
        let after = |nanos| Pushback::After(Duration::from_nanos(nanos));
        assert_eq!(again(Pushback::Never), Some(Pushback::Never));
        assert_eq!(again(after(0)), Some(after(0)));
        assert_eq!(again(after(1)), Some(after(1_000_000)), "never earlier than asked");
        assert_eq!(again(after(250_000_001)), Some(after(251_000_000)));
        let longest = Pushback::After(Duration::from_millis(2_147_483_647));
        assert_eq!(again(Pushback::After(Duration::MAX)), Some(longest));
    }
}
