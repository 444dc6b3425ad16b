//! The time that a client says it will wait.

use std::fmt;
use std::time::Duration;

use http::HeaderName;
use http::request::Parts;

use super::key::Find;

/// Where a request says how long its client waits.
#[derive(Clone)]
pub(super) enum Asked {
    Nowhere,
    Seconds(HeaderName),
    Millis(HeaderName),
    By(Find<Duration>),
}

impl Asked {
    /// What the request says, if it makes sense.
    pub(super) fn limit(&self, head: &Parts, is_grpc: bool) -> Option<Duration> {
        let read = |name: &HeaderName| head.headers.get(name)?.to_str().ok().map(str::trim_ascii);
        let announced = if is_grpc { read(&GRPC_TIMEOUT).and_then(grpc_timeout) } else { None };
        announced.or_else(|| match self {
            Asked::Nowhere => None,
            Asked::Seconds(name) => seconds(read(name)?),
            Asked::Millis(name) => whole(read(name)?).map(Duration::from_millis),
            Asked::By(limit) => limit(head),
        })
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asked::Nowhere => f.write_str("nowhere"),
            Asked::Seconds(name) => write!(f, "{name}, in seconds"),
            Asked::Millis(name) => write!(f, "{name}, in milliseconds"),
            Asked::By(_) => f.write_str("computed"),
        }
    }
}

/// `grpc-timeout`: one to eight digits and a unit.
fn grpc_timeout(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let count = whole(digits)?;
    // At most 99,999,999 hours, so nothing overflows.
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

/// Seconds with or without a fraction, of which nine digits count.
fn seconds(value: &str) -> Option<Duration> {
    let (secs, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let secs = whole(secs)?;
    whole(fraction)?;
    let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos = fraction.parse().ok()?;
    Some(Duration::from_secs(secs).saturating_add(Duration::from_nanos(nanos)))
}

/// A number without sign; one that is too large to read is the largest.
fn whole(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_eight_digits() {
        let secs = |n| Some(Duration::from_secs(n));
        assert_eq!(grpc_timeout("1666667M"), secs(100_000_020));
        assert_eq!(grpc_timeout("99999999H"), secs(99_999_999 * 3_600));
        assert_eq!(grpc_timeout("99999999S"), secs(99_999_999));
        assert_eq!(grpc_timeout("100m"), Some(Duration::from_millis(100)));
        assert_eq!(grpc_timeout("7u"), Some(Duration::from_micros(7)));
        assert_eq!(grpc_timeout("1n"), Some(Duration::from_nanos(1)));
        assert_eq!(grpc_timeout("0S"), secs(0));
        for garbage in ["", "S", "5", "123456789S", "-1S", "+1S", "1.5S", "5s", "5 S", "5SS", "S5", "5é"] {
            assert_eq!(grpc_timeout(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(seconds("2"), Some(Duration::from_secs(2)));
        assert_eq!(seconds("0.25"), Some(Duration::from_millis(250)));
        assert_eq!(seconds("0"), Some(Duration::ZERO));
        assert_eq!(seconds("1.0000000019"), Some(Duration::new(1, 1)));
        assert_eq!(seconds("99999999999999999999999"), Some(Duration::from_secs(u64::MAX)));
        for garbage in ["", ".", ".5", "1.", "-1", "+1", "1e3", "1,5", "NaN", "inf", "1.-5", "2 s", "1.2.3"] {
            assert_eq!(seconds(garbage), None, "{garbage}");
        }
    }
}
