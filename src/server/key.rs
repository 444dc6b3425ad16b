//! Whose limit a request counts against.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;

use crate::error::ConfigError;

/// Finds out whose limit a request counts against: by its address, by a header, or by a function of yours.
///
/// A request of which it finds nothing has no key, see [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone)]
pub struct Key(Source);

#[derive(Clone)]
enum Source {
    Address {
        of: Find<IpAddr>,
        prefix: u8,
    },
    /// Not by address, but with a prefix.
    Misconfigured,
    Header(HeaderName),
    Function(Find<String>),
}

/// A function of a user's that finds something in the head of a request.
pub(super) type Find<T> = Arc<dyn Fn(&Parts) -> Option<T> + Send + Sync>;

impl Key {
    /// By the address of the peer: the [`SocketAddr`] in the extensions of the request, which whoever accepts the connection puts
    /// there. For axum there is `Key::connect_info`, and for anything else [`Key::address`].
    ///
    /// IPv6 addresses count by their first 64 bits, see [`ipv6_prefix`](Key::ipv6_prefix).
    #[must_use]
    pub fn peer() -> Key {
        Key::address(|head| head.extensions.get().map(SocketAddr::ip))
    }

    /// By the address of the peer as axum knows it: `ConnectInfo<SocketAddr>`, which
    /// `into_make_service_with_connect_info::<SocketAddr>()` puts there.
    #[cfg(feature = "axum")]
    #[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
    #[must_use]
    pub fn connect_info() -> Key {
        use axum::extract::ConnectInfo;
        Key::address(|head| head.extensions.get().map(|ConnectInfo::<SocketAddr>(peer)| peer.ip()))
    }

    /// By an address that `find` finds. A panic in it reaches the server.
    ///
    /// # Example: behind a proxy
    /// What a client writes into `X-Forwarded-For` is its own business; what the proxy appends is true. Behind one proxy that is
    /// the last address, and only if the peer is that proxy:
    ///
    /// ```
    /// use std::net::{IpAddr, SocketAddr};
    /// use steadfast::server::Key;
    ///
    /// const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    ///
    /// let key = Key::address(|head| {
    ///     let peer = head.extensions.get::<SocketAddr>()?.ip();
    ///     if peer != PROXY {
    ///         return Some(peer);
    ///     }
    ///     let forwarded = head.headers.get_all("x-forwarded-for").iter().next_back()?;
    ///     forwarded.to_str().ok()?.rsplit(',').next()?.trim().parse().ok()
    /// });
    /// assert!(key.check().is_ok());
    /// ```
    #[must_use]
    pub fn address(find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Key {
        Key(Source::Address { of: Arc::new(find), prefix: DEFAULT_IPV6_PREFIX })
    }

    /// By the value of a header; of several the first.
    #[must_use]
    pub fn header(name: HeaderName) -> Key {
        Key(Source::Header(name))
    }

    /// By what `find` finds. A panic in it reaches the server.
    ///
    /// ```
    /// use steadfast::server::Key;
    ///
    /// // A limit for each route and method.
    /// let key = Key::by(|head| Some(format!("{} {}", head.method, head.uri.path())));
    /// assert!(key.check().is_ok());
    /// ```
    #[must_use]
    pub fn by(find: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Key {
        Key(Source::Function(Arc::new(find)))
    }

    /// Sets how many leading bits of an IPv6 address count, from 1 to 128. Default: [`DEFAULT_IPV6_PREFIX`]. For keys by address
    /// only.
    ///
    /// IPv4 addresses always count as a whole, also where they are written as IPv6 (`::ffff:192.0.2.1`).
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> Key {
        Key(match self.0 {
            Source::Address { of, .. } => Source::Address { of, prefix: bits },
            Source::Header(_) | Source::Function(_) | Source::Misconfigured => Source::Misconfigured,
        })
    }

    /// Says whether the key can work.
    ///
    /// # Errors
    /// If the prefix is out of its range, or the key is not by address.
    pub fn check(&self) -> Result<(), ConfigError> {
        match &self.0 {
            Source::Address { prefix, .. } if !(1..=128).contains(prefix) => {
                Err(ConfigError::new("ipv6_prefix", prefix, "must be from 1 to 128"))
            }
            Source::Misconfigured => Err(ConfigError::new("ipv6_prefix", "set", "is only for keys by address")),
            Source::Address { .. } | Source::Header(_) | Source::Function(_) => Ok(()),
        }
    }

    pub(super) fn find<'a>(&self, head: &'a Parts) -> Option<Cow<'a, [u8]>> {
        match &self.0 {
            Source::Address { of, prefix } => Some(Cow::Owned(text(of(head)?, *prefix).into_bytes())),
            Source::Header(name) => Some(Cow::Borrowed(head.headers.get(name)?.as_bytes())),
            Source::Function(find) => Some(Cow::Owned(find(head)?.into_bytes())),
            Source::Misconfigured => None,
        }
    }
}

/// The part of an address that counts.
fn text(address: IpAddr, prefix: u8) -> String {
    match address.to_canonical() {
        IpAddr::V6(address) if prefix < 128 => {
            let bits = address.to_bits() & !(u128::MAX >> prefix);
            format!("{}/{prefix}", Ipv6Addr::from_bits(bits))
        }
        address => address.to_string(),
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Address { prefix, .. } => write!(f, "Key::address(IPv6: /{prefix})"),
            Source::Header(name) => write!(f, "Key::header({name})"),
            Source::Function(_) => f.write_str("Key::by"),
            Source::Misconfigured => f.write_str("Key::misconfigured"),
        }
    }
}

/// How many bits of an IPv6 address count: 64, since that is what a network gives to a single customer, who can use any address
/// in it.
pub const DEFAULT_IPV6_PREFIX: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str, prefix: u8) -> String {
        text(address.parse().unwrap(), prefix)
    }

    #[test]
    fn ipv6_addresses_of_one_network_are_one_key() {
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 64), "2001:db8:1:2::/64");
        assert_eq!(of("2001:db8:1:2:ffff::1", 64), "2001:db8:1:2::/64");
        assert_eq!(of("2001:db8:1:3::1", 64), "2001:db8:1:3::/64");
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 48), "2001:db8:1::/48");
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 1), "::/1");
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 128), "2001:db8:1:2:3:4:5:6");
    }

    #[test]
    fn ipv4_addresses_count_as_a_whole_also_in_the_clothes_of_ipv6() {
        assert_eq!(of("192.0.2.1", 64), "192.0.2.1");
        assert_eq!(of("::ffff:192.0.2.1", 64), "192.0.2.1");
        assert_eq!(of("::ffff:192.0.2.2", 64), "192.0.2.2");
    }

    #[test]
    fn a_prefix_has_a_range_and_is_for_addresses() {
        for bits in [0, 129, 255] {
            assert_eq!(Key::peer().ipv6_prefix(bits).check().unwrap_err().field(), "ipv6_prefix", "{bits}");
        }
        for bits in [1, 64, 128] {
            assert!(Key::peer().ipv6_prefix(bits).check().is_ok(), "{bits}");
        }
        let header = Key::header(HeaderName::from_static("x-api-key")).ipv6_prefix(64);
        assert_eq!(header.check().unwrap_err().field(), "ipv6_prefix");
    }
}
