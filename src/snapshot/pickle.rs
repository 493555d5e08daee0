//! A reader for the pickles that snapshots are: numbers, text, lists, dicts and tuples, nothing that could run code.
//!
//! Written for files from strangers: no recursion (values live in one arena, so depth costs nothing and cycles are
//! harmless), every length is checked against the bytes that are left, every other opcode is refused by name, and the
//! values may take only a few times the memory of the file itself.

use std::collections::HashMap;

use crate::units::Bytes;

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
/// What the system's allocator adds to each piece of memory.
const PIECE: usize = 16;

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

    fn parse_within(bytes: &[u8], allowed: u64) -> Result<Pickle, PickleError> {
        let mut machine = Machine {
            held: 0,
            allowed,
            bytes,
            at: 0,
            nodes: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
        };
        let root = machine.run()?;
        Ok(Pickle {
            nodes: machine.nodes,
            root,
        })
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

/// Memoised values: nearly always numbered from 0 on without gaps.
#[derive(Default)]
struct Memo {
    dense: Vec<Value>,
    sparse: HashMap<u64, Value>,
}

impl Memo {
    fn put(&mut self, index: u64, value: Value) {
        match (index as usize).cmp(&self.dense.len()) {
            std::cmp::Ordering::Less => self.dense[index as usize] = value,
            std::cmp::Ordering::Equal => self.dense.push(value),
            std::cmp::Ordering::Greater => drop(self.sparse.insert(index, value)),
        }
    }

    fn get(&self, index: u64) -> Option<Value> {
        self.dense
            .get(index as usize)
            .or_else(|| self.sparse.get(&index))
            .copied()
    }

    fn len(&self) -> u64 {
        (self.dense.len() + self.sparse.len()) as u64
    }

    /// Bytes of memory, about: a map keeps a quarter of its places free and has one byte beside each.
    fn held(&self) -> usize {
        self.dense.capacity() * size_of::<Value>() + self.sparse.capacity() * (size_of::<(u64, Value)>() + 8)
    }
}

struct Machine<'a> {
    /// Bytes of memory that texts and containers hold; nodes, stack and memo are counted by their length.
    held: usize,
    /// What all of them may hold.
    allowed: u64,
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Value>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: Memo,
}

impl Machine<'_> {
    fn error(&self, what: impl Into<String>) -> PickleError {
        PickleError {
            at: self.at,
            what: what.into(),
        }
    }

    fn take(&mut self, count: usize) -> Result<&[u8], PickleError> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.error(format!("breaks off: {count} more bytes belong here")))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// An unsigned little-endian number of `count` bytes.
    fn number(&mut self, count: usize) -> Result<u64, PickleError> {
        let taken = self.take(count)?;
        Ok(taken.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn length(&mut self, count: usize) -> Result<usize, PickleError> {
        let n = self.number(count)?;
        usize::try_from(n).map_err(|_| self.error(format!("a length of {n} bytes")))
    }

    fn pop(&mut self) -> Result<Value, PickleError> {
        let floor = self.marks.last().copied().unwrap_or_default();
        if self.stack.len() <= floor {
            return Err(self.error("the stack is empty"));
        }
        self.stack.pop().ok_or_else(|| self.error("the stack is empty"))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, PickleError> {
        let floor = self.marks.pop().ok_or_else(|| self.error("no mark"))?;
        Ok(self.stack.split_off(floor))
    }

    /// Refuses a file whose values take more memory than its size explains.
    fn check_memory(&self) -> Result<(), PickleError> {
        let lists = self.nodes.capacity() * size_of::<Node>()
            + self.stack.capacity() * size_of::<Value>()
            + self.marks.capacity() * size_of::<usize>();
        let held = (self.held + lists + self.memo.held()) as u64;
        if held > self.allowed {
            return Err(self.error(format!(
                "the values take {} of memory so far, more than a file of {} can need: it is refused",
                Bytes(held),
                Bytes(self.bytes.len() as u64)
            )));
        }
        Ok(())
    }

    fn push_node(&mut self, node: Node) -> Result<(), PickleError> {
        self.held += match &node {
            Node::Text(text) => text.len() + PIECE,
            Node::List(items) => items.capacity() * size_of::<Value>() + PIECE,
            Node::Dict(_) => PIECE,
        };
        let id = u32::try_from(self.nodes.len()).map_err(|_| self.error("more than 2^32 values"))?;
        self.nodes.push(node);
        self.stack.push(Value::Node(id));
        Ok(())
    }

    fn push_text(&mut self, length: usize) -> Result<(), PickleError> {
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.push_node(Node::Text(text.into_boxed_str()))
    }

    /// A two's complement number of any length up to 16 bytes, if 64 bits can hold its value.
    fn push_long(&mut self, length: usize) -> Result<(), PickleError> {
        if length > 16 {
            return Err(self.error(format!("an integer of {length} bytes")));
        }
        let taken = self.take(length)?;
        let negative = taken.last().is_some_and(|b| b & 0x80 != 0);
        let filler = if negative { 0xff } else { 0 };
        let mut all = [filler; 16];
        all[..length].copy_from_slice(taken);
        let number = i128::from_le_bytes(all);
        let value = i64::try_from(number)
            .map(Value::Int)
            .or_else(|_| u64::try_from(number).map(Value::Large))
            .map_err(|_| self.error("an integer of more than 64 bits"))?;
        self.stack.push(value);
        Ok(())
    }

    fn append(&mut self, items: Vec<Value>) -> Result<(), PickleError> {
        match self.stack.last() {
            Some(Value::Node(n)) => match &mut self.nodes[*n as usize] {
                Node::List(list) => {
                    let before = list.capacity();
                    list.extend(items);
                    self.held += (list.capacity() - before) * size_of::<Value>();
                }
                _ => return Err(self.error("append to something that is no list")),
            },
            _ => return Err(self.error("append to something that is no list")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Value]) -> Result<(), PickleError> {
        let odd = items.len() % 2 == 1;
        match self.stack.last() {
            Some(Value::Node(n)) if !odd => match &mut self.nodes[*n as usize] {
                Node::Dict(dict) => {
                    let before = dict.capacity();
                    dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
                    self.held += (dict.capacity() - before) * size_of::<(Value, Value)>();
                }
                _ => return Err(self.error("an item of something that is no dict")),
            },
            _ => return Err(self.error("an item of something that is no dict, or a key without a value")),
        }
        Ok(())
    }

    fn tuple(&mut self, count: usize) -> Result<(), PickleError> {
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push_node(Node::List(items))
    }

    fn memoize(&mut self, index: u64) -> Result<(), PickleError> {
        let top = *self.stack.last().ok_or_else(|| self.error("nothing to memoise"))?;
        self.memo.put(index, top);
        Ok(())
    }

    fn recall(&mut self, index: u64) -> Result<(), PickleError> {
        let value = self
            .memo
            .get(index)
            .ok_or_else(|| self.error(format!("nothing was memoised as {index}")))?;
        self.stack.push(value);
        Ok(())
    }

    fn run(&mut self) -> Result<Value, PickleError> {
        loop {
            self.check_memory()?;
            let opcode = self.take(1)?[0];
            match opcode {
                0x80 => {
                    let protocol = self.number(1)?;
                    if !(2..=5).contains(&protocol) {
                        return Err(self.error(format!("protocol {protocol}; 2 to 5 are read")));
                    }
                }
                0x95 => drop(self.number(8)?),
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => drop(self.pop()?),
                b'N' => self.stack.push(Value::None),
                0x88 => self.stack.push(Value::Bool(true)),
                0x89 => self.stack.push(Value::Bool(false)),
                b'J' => {
                    let n = self.number(4)? as u32;
                    self.stack.push(Value::Int(i64::from(n as i32)));
                }
                b'K' => {
                    let n = self.number(1)?;
                    self.stack.push(Value::Int(n as i64));
                }
                b'M' => {
                    let n = self.number(2)?;
                    self.stack.push(Value::Int(n as i64));
                }
                0x8a => {
                    let length = self.length(1)?;
                    self.push_long(length)?;
                }
                0x8b => {
                    let length = self.length(4)?;
                    self.push_long(length)?;
                }
                b'G' => {
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(self.take(8)?);
                    self.stack.push(Value::Float(f64::from_be_bytes(bytes)));
                }
                0x8c => {
                    let length = self.length(1)?;
                    self.push_text(length)?;
                }
                b'X' => {
                    let length = self.length(4)?;
                    self.push_text(length)?;
                }
                0x8d => {
                    let length = self.length(8)?;
                    self.push_text(length)?;
                }
                b']' | b')' => self.push_node(Node::List(Vec::new()))?,
                b'}' => self.push_node(Node::Dict(Vec::new()))?,
                b'l' | b't' => {
                    let items = self.pop_to_mark()?;
                    self.push_node(Node::List(items))?;
                }
                b'd' => {
                    let items = self.pop_to_mark()?;
                    self.push_node(Node::Dict(Vec::new()))?;
                    self.set_items(&items)?;
                }
                b'a' => {
                    let item = self.pop()?;
                    self.append(vec![item])?;
                }
                b'e' => {
                    let items = self.pop_to_mark()?;
                    self.append(items)?;
                }
                b's' => {
                    let value = self.pop()?;
                    let key = self.pop()?;
                    self.set_items(&[key, value])?;
                }
                b'u' => {
                    let items = self.pop_to_mark()?;
                    self.set_items(&items)?;
                }
                0x85..=0x87 => self.tuple(usize::from(opcode - 0x84))?,
                0x94 => {
                    let index = self.memo.len();
                    self.memoize(index)?;
                }
                b'q' => {
                    let index = self.number(1)?;
                    self.memoize(index)?;
                }
                b'r' => {
                    let index = self.number(4)?;
                    self.memoize(index)?;
                }
                b'h' => {
                    let index = self.number(1)?;
                    self.recall(index)?;
                }
                b'j' => {
                    let index = self.number(4)?;
                    self.recall(index)?;
                }
                other => return Err(self.error(refusal(other))),
            }
        }
    }
}

/// Names an opcode that a snapshot has no use for.
fn refusal(opcode: u8) -> String {
    let name = match opcode {
        b'c' => "GLOBAL",
        0x93 => "STACK_GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        b'P' | b'Q' => "PERSID",
        0x82..=0x84 => "EXT",
        b'B' | b'C' | 0x8e | 0x96 => "bytes",
        0x8f..=0x91 => "sets",
        _ => return format!("opcode {opcode:#04x} has no place in a snapshot"),
    };
    format!("opcode {name} has no place in a snapshot; nothing was run")
}

#[cfg(test)]
mod tests;
