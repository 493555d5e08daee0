//! The stack machine behind a pickle, without the opcodes that name or call anything.

use super::memo::Memo;
use super::{Node, PickleError, Value};
use crate::units::Bytes;

/// What the system's allocator adds to each piece of memory.
const PIECE: usize = 16;

/// The stack machine that a pickle is a program for.
pub(super) struct Machine<'a> {
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

impl<'a> Machine<'a> {
    /// At the start of `bytes`, with `allowed` bytes of memory for the values.
    pub(super) fn new(bytes: &'a [u8], allowed: u64) -> Self {
        Machine {
            held: 0,
            allowed,
            bytes,
            at: 0,
            nodes: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
        }
    }

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

    /// A length, a number of `count` bytes.
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

    /// A text behind its length, a number of `count` bytes.
    fn push_text(&mut self, count: usize) -> Result<(), PickleError> {
        let length = self.length(count)?;
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.push_node(Node::Text(text.into_boxed_str()))
    }

    /// A two's complement number behind its length, a number of `count` bytes: up to 16 bytes, if 64 bits can hold its
    /// value.
    fn long(&mut self, count: usize) -> Result<Value, PickleError> {
        let length = self.length(count)?;
        if length > 16 {
            return Err(self.error(format!("an integer of {length} bytes")));
        }
        let taken = self.take(length)?;
        let negative = taken.last().is_some_and(|b| b & 0x80 != 0);
        let filler = if negative { 0xff } else { 0 };
        let mut all = [filler; 16];
        all[..length].copy_from_slice(taken);
        let number = i128::from_le_bytes(all);
        i64::try_from(number)
            .map(Value::Int)
            .or_else(|_| u64::try_from(number).map(Value::Large))
            .map_err(|_| self.error("an integer of more than 64 bits"))
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

    /// Keeps the top of the stack under the number that follows in `count` bytes, else under the next one.
    fn memoize(&mut self, count: Option<usize>) -> Result<(), PickleError> {
        let index = match count {
            Some(count) => self.number(count)?,
            None => self.memo.len(),
        };
        let top = *self.stack.last().ok_or_else(|| self.error("nothing to memoise"))?;
        self.memo.put(index, top);
        Ok(())
    }

    /// Pushes what was kept under the number that follows in `count` bytes.
    fn recall(&mut self, count: usize) -> Result<(), PickleError> {
        let index = self.number(count)?;
        let value = self
            .memo
            .get(index)
            .ok_or_else(|| self.error(format!("nothing was memoised as {index}")))?;
        self.stack.push(value);
        Ok(())
    }

    /// Runs the pickle: its values and the one that it holds.
    pub(super) fn run(mut self) -> Result<(Vec<Node>, Value), PickleError> {
        loop {
            self.check_memory()?;
            let opcode = self.take(1)?[0];
            if opcode == b'.' {
                let root = self.pop()?;
                return Ok((self.nodes, root));
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            0x80 => {
                let protocol = self.number(1)?;
                if !(2..=5).contains(&protocol) {
                    return Err(self.error(format!("protocol {protocol}; 2 to 5 are read")));
                }
            }
            0x95 => drop(self.number(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'q' => self.memoize(Some(1))?,
            b'r' => self.memoize(Some(4))?,
            0x94 => self.memoize(None)?,
            b'h' => self.recall(1)?,
            b'j' => self.recall(4)?,
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
            _ => self.push(opcode)?,
        }
        Ok(())
    }

    /// The opcodes that push a value which they bring along.
    fn push(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match opcode {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'J' => Value::Int(i64::from(self.number(4)? as u32 as i32)),
            b'K' => Value::Int(self.number(1)? as i64),
            b'M' => Value::Int(self.number(2)? as i64),
            b'G' => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(self.take(8)?);
                Value::Float(f64::from_be_bytes(bytes))
            }
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            0x8c => return self.push_text(1),
            b'X' => return self.push_text(4),
            0x8d => return self.push_text(8),
            b']' | b')' => return self.push_node(Node::List(Vec::new())),
            b'}' => return self.push_node(Node::Dict(Vec::new())),
            other => return Err(self.error(refusal(other))),
        };
        self.stack.push(value);
        Ok(())
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
