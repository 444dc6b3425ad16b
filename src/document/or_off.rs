//! Settings that can be taken away.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A setting, or the word "off": since what a document does not name stays as it was, leaving it out does not do that.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OrOff<T> {
    On(T),
    Off,
}

impl<T> OrOff<T> {
    pub(crate) fn get(self) -> Option<T> {
        match self {
            OrOff::On(value) => Some(value),
            OrOff::Off => None,
        }
    }

    pub(crate) fn of(value: Option<T>) -> OrOff<T> {
        value.map_or(OrOff::Off, OrOff::On)
    }
}

impl<T: Serialize> Serialize for OrOff<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            OrOff::On(value) => value.serialize(serializer),
            OrOff::Off => serializer.serialize_str(OFF),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrOff<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OrOff<T>, D::Error> {
        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// By hand: an untagged enum would say of every mistake only that nothing fits.
struct Either<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
    type Value = OrOff<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or \"off\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OrOff<T>, E> {
        if text == OFF {
            return Ok(OrOff::Off);
        }
        T::deserialize(StrDeserializer::new(text)).map(OrOff::On)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<OrOff<T>, E> {
        T::deserialize(number.into_deserializer()).map(OrOff::On)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<OrOff<T>, E> {
        T::deserialize(number.into_deserializer()).map(OrOff::On)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<OrOff<T>, E> {
        T::deserialize(number.into_deserializer()).map(OrOff::On)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<OrOff<T>, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(OrOff::On)
    }
}

const OFF: &str = "off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_whatever_it_is_made_of() {
        assert_eq!(serde_json::from_str::<OrOff<u32>>("3").unwrap(), OrOff::On(3));
        assert_eq!(serde_json::from_str::<OrOff<f64>>("0.5").unwrap(), OrOff::On(0.5));
        assert_eq!(serde_json::from_str::<OrOff<String>>("\"on\"").unwrap(), OrOff::On("on".to_owned()));
        assert_eq!(serde_json::from_str::<OrOff<f64>>("\"off\"").unwrap(), OrOff::Off);
    }

    #[test]
    fn mistakes_are_those_of_the_setting() {
        let refused = |json: &str| serde_json::from_str::<OrOff<u32>>(json).unwrap_err().to_string();
        assert!(refused("-3").contains("integer `-3`, expected u32"), "{}", refused("-3"));
        assert!(refused("\"of\"").contains("string \"of\", expected u32"), "{}", refused("\"of\""));
    }
}
