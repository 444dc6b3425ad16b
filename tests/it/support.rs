//! What the tests share: a clock, scripted operations, a recorder of events.
