//! The pause that a response asks for.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// The pause that the `Retry-After` of a response asks for, if it has one that makes sense. `now` is the wall clock.
///
/// Whole seconds and the three forms of an HTTP date make sense. A number that is too large to read asks for the longest
/// pause there is, and a date that has passed for none. Anything else, a negative or a fractional number for example, asks
/// for nothing. Of several headers the first that makes sense counts.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    headers.get_all(RETRY_AFTER).iter().find_map(|value| pause(value.to_str().ok()?.trim_ascii(), now))
}

fn pause(value: &str, now: SystemTime) -> Option<Duration> {
    if value.is_empty() {
        None
    } else if value.bytes().all(|byte| byte.is_ascii_digit()) {
        Some(value.parse().map_or(Duration::MAX, Duration::from_secs))
    } else {
        let date = httpdate::parse_http_date(value).ok()?;
        Some(date.duration_since(now).unwrap_or(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// 2015-10-21T07:28:00Z.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_445_412_480)
    }

    fn asked(values: &[&[u8]]) -> Option<Duration> {
        let values = values.iter().map(|value| HeaderValue::from_bytes(value).unwrap());
        let headers = values.map(|value| (RETRY_AFTER, value)).collect();
        retry_after(&headers, now())
    }

    fn seconds(n: u64) -> Option<Duration> {
        Some(Duration::from_secs(n))
    }

    #[test]
    fn retry_after_unit() {
        assert_eq!(asked(&[b"2"]), seconds(2));
        assert_eq!(asked(&[b" 120 "]), seconds(120));
        assert_eq!(asked(&[b"0"]), seconds(0));
        assert_eq!(asked(&[]), None);
    }

    #[test]
    fn retry_after_huge_seconds() {
        for huge in [9_223_372_036, 9_223_372_037, 9_223_372_036_854_775_807, u64::MAX] {
            assert_eq!(asked(&[huge.to_string().as_bytes()]), seconds(huge), "{huge}");
        }
        assert_eq!(asked(&[b"18446744073709551616"]), Some(Duration::MAX));
        assert_eq!(asked(&[&[b'9'; 40]]), Some(Duration::MAX));
    }

    #[test]
    fn retry_after_negative_or_past() {
        assert_eq!(asked(&[b"-1"]), None);
        assert_eq!(asked(&[b"+1"]), None);
        assert_eq!(asked(&[b"Wed, 21 Oct 2015 07:27:59 GMT"]), seconds(0));
        assert_eq!(asked(&[b"Thu, 01 Jan 1970 00:00:00 GMT"]), seconds(0));
    }

    #[test]
    fn retry_after_malformed_date() {
        let malformed: [&[u8]; 9] = [
            b"soon",
            b"",
            b"  ",
            b"1.5",
            b"12abc",
            b"1, 2",
            b"Fri, 99 Foo 1999",
            b"Wed, 21 Oct 2015 07:28:00",
            b"2015-10-21T07:28:00Z",
        ];
        for value in malformed {
            assert_eq!(asked(&[value]), None, "{:?}", String::from_utf8_lossy(value));
        }
        assert_eq!(asked(&[b"\xff\xfe"]), None);
        assert_eq!(asked(&[b"soon\xe9"]), None);
    }

    #[test]
    fn all_three_forms_of_a_date_count_from_the_given_wall_clock() {
        for date in ["Wed, 21 Oct 2015 07:28:07 GMT", "Wednesday, 21-Oct-15 07:28:07 GMT", "Wed Oct 21 07:28:07 2015"] {
            assert_eq!(asked(&[date.as_bytes()]), seconds(7), "{date}");
        }
        assert!(asked(&[b"Fri, 31 Dec 9999 23:59:59 GMT"]) > seconds(250_000_000_000));
    }

    #[test]
    fn of_two_headers_the_first_that_makes_sense_counts() {
        assert_eq!(asked(&[b"7", b"3"]), seconds(7));
        assert_eq!(asked(&[b"soon", b"3"]), seconds(3));
        assert_eq!(asked(&[b"soon", b"\xff"]), None);
    }
}
