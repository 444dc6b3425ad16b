//! What the server goes through, and when.

use std::time::Duration;

/// A part of the script in which the server behaves in one way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) behaviour: Behaviour,
    pub(crate) length: Duration,
}

/// What the server does with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    /// Answers 200 within a few milliseconds.
    Healthy,
    /// Answers this share of the requests with 503.
    Errors(f64),
    /// Accepts connections, reads requests, and answers nothing, ever.
    Dead,
    /// Lets one request through in each such time, and answers the others 429 with `Retry-After: 1`.
    Throttling(Duration),
    /// Answers 200, after this long.
    Slow(Duration),
}

/// The outage, scaled down to 15 s.
pub(crate) const SCRIPT: [Phase; 6] = [
    Phase { name: "healthy", behaviour: Behaviour::Healthy, length: Duration::from_millis(2_000) },
    Phase { name: "30 % errors", behaviour: Behaviour::Errors(0.3), length: Duration::from_millis(2_500) },
    Phase { name: "dead", behaviour: Behaviour::Dead, length: Duration::from_millis(3_000) },
    Phase {
        name: "429 above 40/s",
        behaviour: Behaviour::Throttling(Duration::from_millis(25)),
        length: Duration::from_millis(2_500),
    },
    Phase {
        name: "slow, 400 ms",
        behaviour: Behaviour::Slow(Duration::from_millis(400)),
        length: Duration::from_millis(2_500),
    },
    Phase { name: "healthy again", behaviour: Behaviour::Healthy, length: Duration::from_millis(2_500) },
];

/// The phases with the times, since the start of the script, at which they begin and end.
pub(crate) fn timeline() -> impl Iterator<Item = (Duration, Duration, &'static Phase)> {
    SCRIPT.iter().scan(Duration::ZERO, |begin, phase| {
        let from = *begin;
        *begin += phase.length;
        Some((from, *begin, phase))
    })
}

/// How long it takes.
pub(crate) fn length() -> Duration {
    SCRIPT.iter().map(|phase| phase.length).sum()
}

/// The phase at a time since the start; the last one goes on for ever.
pub(crate) fn phase_at(time: Duration) -> &'static Phase {
    timeline().find(|(_, end, _)| time < *end).map_or(&SCRIPT[SCRIPT.len() - 1], |(_, _, phase)| phase)
}
