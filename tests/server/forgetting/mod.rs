//! Filters with WINDOW or ROLLING, which forget old items: an item is present until its window is over, and is
//! forgotten at most one slice later, also on replicas and after restarts. The tests set the module's clock.
//!
//! - [`windows`]: how long items are present, and how many; [`clock`]: the time that a command takes for the present;
//! - [`replicating`]: replicas, restarts and copies; [`items`]: items that these tests add and look up.

mod clock;
mod items;
mod replicating;
mod windows;
