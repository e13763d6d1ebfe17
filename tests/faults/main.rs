//! What can befall a server from outside: it is killed, its disk is full, its memory is refused, its links break, its files and
//! streams are damaged. What was acknowledged stays, or it says so.

mod crash;
mod damage;
mod disk;
mod journal;
mod memory;
mod recorded;
mod resync;
mod streams;
