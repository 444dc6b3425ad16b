//! Times as people write them.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time: "250ms", "1m 30s", "1.5s"; "never" is `Duration::MAX`, one that is never over. A number without a unit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Duration::MAX => serializer.serialize_str(NEVER),
            time => serializer.collect_str(&humantime::format_duration(time)),
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with its unit, such as \"250ms\", \"1m 30s\" or \"never\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        if text == NEVER {
            return Ok(Span(Duration::MAX));
        }
        let parsed = humantime::parse_duration(text);
        parsed.map(Span).map_err(|error| E::custom(format_args!("\"{text}\" is not a time: {error}")))
    }
}

const NEVER: &str = "never";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Duration, String> {
        serde_json::from_str::<Span>(json).map(|span| span.0).map_err(|error| error.to_string())
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        let ms = Duration::from_millis;
        for (text, time) in [("250ms", ms(250)), ("1.5s", ms(1500)), ("1m 30s", ms(90_000)), ("0s", ms(0))] {
            assert_eq!(read(&format!("\"{text}\"")), Ok(time), "{text}");
        }
        assert_eq!(read("\"never\""), Ok(Duration::MAX));
    }

    #[test]
    fn what_is_written_is_read_as_the_same_time() {
        let odd = Duration::new(86_400 * 400 + 3, 1_000_001);
        for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(90), odd, Duration::MAX] {
            let text = serde_json::to_string(&Span(time)).unwrap();
            assert_eq!(read(&text), Ok(time), "{text}");
        }
        assert_eq!(serde_json::to_string(&Span(Duration::from_millis(250))).unwrap(), "\"250ms\"");
    }

    #[test]
    fn a_number_without_a_unit_is_refused() {
        assert!(read("30").unwrap_err().contains("expected a time with its unit"));
        assert!(read("\"30\"").unwrap_err().contains("\"30\" is not a time: time unit needed"));
        assert!(read("\"9 parsecs\"").unwrap_err().contains("parsecs"));
        assert!(read("\"-1s\"").is_err());
    }
}
