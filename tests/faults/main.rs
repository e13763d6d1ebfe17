//! Faults from outside a server: kills, full disks, failed allocations, broken links, and damaged files and streams. A
//! server keeps all acknowledged changes, or reports the loss.

mod crash;
mod damage;
mod memory;
mod recorded;
mod resync;
mod streams;
#[cfg(target_arch = "x86_64")] // like the library that lets writes fail
mod writes;
