//! Calls of commands, also of other modules, and their replies.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr::NonNull;

use redis_module::raw;

use super::args::Arg;
use super::context::Context;
use super::key::Keyspace;
use crate::ffi::{RawString, call};

impl Keyspace<'_> {
    /// Runs a command with these arguments, and replicates it if it is one of the server that changes a key.
    /// Permissions of the client are not checked. Returns `None` if there is no such command, or the server cannot run
    /// it.
    pub(crate) fn call(&mut self, ctx: &Context, command: &CStr, arguments: &[Arg]) -> Option<CallReply> {
        let strings = arguments.as_ptr().cast::<RawString>();
        // SAFETY: the arguments match the format, an array of strings with its length. All are alive, and an `Arg` is a
        // pointer to a string. The command may do anything to any key: all keys are closed.
        let reply = unsafe {
            call!(RedisModule_Call(ctx.as_raw(), command.as_ptr(), c"!v".as_ptr(), strings, arguments.len()))
        };
        NonNull::new(reply).map(CallReply)
    }
}

/// The reply to a [call](Keyspace::call). It is freed when dropped.
pub(crate) struct CallReply(NonNull<raw::RedisModuleCallReply>);

impl CallReply {
    pub(crate) fn value(&self) -> Value<'_> {
        Value { reply: self.0, lifetime: PhantomData }
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: the reply is ours, and nothing borrows it any more.
        unsafe { call!(RedisModule_FreeCallReply(self.0.as_ptr())) };
    }
}

/// A reply, or an element of one.
pub(crate) struct Value<'a> {
    reply: NonNull<raw::RedisModuleCallReply>,
    lifetime: PhantomData<&'a CallReply>,
}

impl<'a> Value<'a> {
    fn is_of(&self, kind: isize) -> bool {
        // SAFETY: the reply is alive.
        unsafe { call!(RedisModule_CallReplyType(self.reply.as_ptr())) == kind as c_int }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.is_of(raw::REDISMODULE_REPLY_ERROR)
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        // SAFETY: the reply is alive.
        self.is_of(raw::REDISMODULE_REPLY_INTEGER)
            .then(|| unsafe { call!(RedisModule_CallReplyInteger(self.reply.as_ptr())) })
    }

    pub(crate) fn bytes(&self) -> Option<&'a [u8]> {
        if !self.is_of(raw::REDISMODULE_REPLY_STRING) {
            return None;
        }
        let mut length = 0;
        // SAFETY: the reply is alive, and the server writes the length to a place of ours.
        let start = unsafe { call!(RedisModule_CallReplyStringPtr(self.reply.as_ptr(), &mut length)) };
        // SAFETY: the server returns the address and the length of bytes that live as long as the reply.
        (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast(), length) })
    }

    pub(crate) fn element(&self, index: usize) -> Option<Value<'a>> {
        // SAFETY: the reply is alive. The server returns null for an element that it does not have, also if it is no array.
        let element = unsafe { call!(RedisModule_CallReplyArrayElement(self.reply.as_ptr(), index)) };
        NonNull::new(element).map(|reply| Value { reply, lifetime: PhantomData })
    }
}

impl Context<'_> {
    pub(crate) fn reply_call(&self, reply: &CallReply) {
        self.count_sent(1);
        // SAFETY: the context and the reply are alive.
        unsafe { call!(RedisModule_ReplyWithCallReply(self.as_raw(), reply.0.as_ptr())) };
    }
}
