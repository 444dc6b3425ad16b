//! A deadline on its way to the server: the header `grpc-timeout`.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

/// `grpc-timeout` for what is left of a deadline: at most eight digits and a unit, the smallest one that they fit into, and
/// never less than what is left. If nothing is, a nanosecond: zero is not a time limit.
pub(super) fn encode(left: Duration) -> HeaderValue {
    let nanos = left.as_nanos().max(1);
    let fitting = UNITS.iter().map(|&(unit, size)| (nanos.div_ceil(size), unit)).find(|(count, _)| *count <= MOST);
    let (count, unit) = fitting.unwrap_or((MOST, 'H'));
    HeaderValue::try_from(format!("{count}{unit}")).expect("digits and a letter make a header")
}

/// The time limit that a request carries already, if it makes sense.
pub(super) fn decode(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(&GRPC_TIMEOUT)?.to_str().ok()?;
    let (count, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let digits = (1..=8).contains(&count.len()) && count.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = count.parse().ok().filter(|_| digits)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

pub(super) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The units, in nanoseconds, from the smallest.
const UNITS: [(char, u128); 6] = [
    ('n', 1),
    ('u', 1_000),
    ('m', 1_000_000),
    ('S', 1_000_000_000),
    ('M', 60 * 1_000_000_000),
    ('H', 3_600 * 1_000_000_000),
];

/// Eight digits.
const MOST: u128 = 99_999_999;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(left: Duration) -> String {
        encode(left).to_str().unwrap().to_owned()
    }

    fn decoded(value: &[u8]) -> Option<Duration> {
        decode(&HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_bytes(value).unwrap())]))
    }

    #[test]
    fn grpc_timeout_eight_digits() {
        assert_eq!(encoded(Duration::from_secs(100_000_000)), "1666667M");
        assert_eq!(encoded(Duration::from_secs(99_999_999)), "99999999S");
        assert_eq!(encoded(Duration::from_nanos(1)), "1n");
        assert_eq!(encoded(Duration::ZERO), "1n");
        assert_eq!(encoded(Duration::MAX), "99999999H");
        assert_eq!(encoded(Duration::from_millis(100)), "100000u", "a hundred million nanoseconds have nine digits");
        assert_eq!(encoded(Duration::from_nanos(99_999_999)), "99999999n");
        assert_eq!(encoded(Duration::from_nanos(100_000_001)), "100001u", "rounded up");
        assert_eq!(encoded(Duration::new(99_999_999, 1)), "1666667M", "rounding up may take another digit");
    }

    #[test]
    fn a_timeout_that_makes_no_sense_is_none() {
        for value in [&b""[..], b"S", b"7", b"7s", b"123456789S", b"+7S", b"-7S", b"7.5S", b" 7S", b"7 S", b"\xff"] {
            assert_eq!(decoded(value), None, "{:?}", String::from_utf8_lossy(value));
        }
        assert_eq!(decode(&HeaderMap::new()), None);
        assert_eq!(decoded(b"00000007S"), Some(Duration::from_secs(7)));
        assert_eq!(decoded(b"0n"), Some(Duration::ZERO));
    }

    proptest! {
        #[test]
        fn a_server_never_gets_less_than_is_left_and_at_most_a_thousandth_more(nanos in 1..=u64::MAX) {
            let left = Duration::from_nanos(nanos);
            let sent = decoded(encoded(left).as_bytes()).unwrap();
            prop_assert!(sent >= left);
            prop_assert!(sent - left <= left / 1_000 + Duration::from_nanos(1));
        }
    }
}
