//! A reader for the pickles that snapshots are: numbers, text, lists, dicts and tuples, nothing that could run code.
//!
//! Written for files from strangers: no recursion (values live in one arena, so depth costs nothing and cycles are
//! harmless), every length is checked against the bytes that are left, every other opcode is refused by name, and the
//! values may take only a few times the memory of the file itself.

mod machine;
mod memo;

use machine::Machine;

/// A value; text and containers are named by their place in the arena.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// None.
    None,
    /// True or False.
    Bool(bool),
    /// An integer of up to 64 bits with a sign.
    Int(i64),
    /// An integer from 2^63 to 2^64 - 1.
    Large(u64),
    /// A float.
    Float(f64),
    /// Text, list, tuple or dict number n.
    Node(u32),
}

/// Memory that the values may take whatever the file's size.
const FREE_ALLOWANCE: u64 = 64 << 20;
/// Beyond that they may take so many times the file's size: an event of a snapshot is 50 bytes there and 380 here.
const SPREAD: u64 = 10;
/// And never more than this.
const MOST: u64 = 3 << 29;
/// What the arena holds; a tuple is a list here.
#[derive(Debug)]
enum Node {
    Text(Box<str>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
}

/// Why a pickle was refused, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pickle, byte {at}: {what}")]
pub struct PickleError {
    /// Offset in the file.
    pub at: usize,
    /// What is wrong.
    pub what: String,
}

/// A pickle that was read completely.
#[derive(Debug)]
pub struct Pickle {
    nodes: Vec<Node>,
    /// The value that the pickle holds.
    pub root: Value,
}

impl Pickle {
    /// Reads protocols 2 to 5. Takes at most 64 MiB and ten times the file's size, and 1.5 GiB; a file whose values take
    /// more is refused, because one byte of it may stand for a hundred bytes of memory.
    pub fn parse(bytes: &[u8]) -> Result<Pickle, PickleError> {
        let size = bytes.len() as u64;
        Pickle::parse_within(
            bytes,
            FREE_ALLOWANCE.saturating_add(size.saturating_mul(SPREAD)).min(MOST),
        )
    }

    /// Reads a pickle whose values may take `allowed` bytes of memory.
    fn parse_within(bytes: &[u8], allowed: u64) -> Result<Pickle, PickleError> {
        let (nodes, root) = Machine::new(bytes, allowed).run()?;
        Ok(Pickle { nodes, root })
    }

    fn node(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(n) => self.nodes.get(n as usize),
            _ => None,
        }
    }

    /// Its items, if it is a list or a tuple.
    pub fn list(&self, value: Value) -> Option<&[Value]> {
        match self.node(value)? {
            Node::List(items) => Some(items),
            _ => None,
        }
    }

    /// Its text, if it is text.
    pub fn text(&self, value: Value) -> Option<&str> {
        match self.node(value)? {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value under `key`, if it is a dict that has it. The last one wins, as in Python.
    pub fn get(&self, value: Value, key: &str) -> Option<Value> {
        match self.node(value)? {
            Node::Dict(items) => items
                .iter()
                .rev()
                .find(|(k, _)| self.text(*k) == Some(key))
                .map(|(_, v)| *v),
            _ => None,
        }
    }

    /// Its keys in order, if it is a dict of text keys.
    pub fn keys(&self, value: Value) -> Vec<&str> {
        match self.node(value) {
            Some(Node::Dict(items)) => items.iter().filter_map(|(k, _)| self.text(*k)).collect(),
            _ => Vec::new(),
        }
    }

    /// The value as an unsigned number.
    pub fn unsigned(value: Value) -> Option<u64> {
        match value {
            Value::Int(n) => u64::try_from(n).ok(),
            Value::Large(n) => Some(n),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
