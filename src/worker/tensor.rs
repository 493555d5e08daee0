//! What the user allocates: a shape of elements of one type, as `torch.zeros(shape, dtype=...)` would.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most dimensions of a tensor (c10 keeps sizes inline up to 5; PyTorch itself refuses more than 64).
const MAX_DIMENSIONS: usize = 64;

/// The sizes of a tensor's dimensions, outermost first. At least one; none is 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape(Vec<u64>);

/// Why a text is no shape or no dtype, with what would be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTensor(String);

impl Shape {
    /// A shape of these dimensions.
    ///
    /// # Errors
    /// No dimension, more than 64, one of size 0, or a product beyond 2^64 - 1.
    pub fn new(dimensions: Vec<u64>) -> Result<Self, BadTensor> {
        if dimensions.is_empty() || dimensions.len() > MAX_DIMENSIONS {
            return Err(BadTensor(format!(
                "a shape has 1 to {MAX_DIMENSIONS} dimensions, such as 10000x20000"
            )));
        }
        if dimensions.contains(&0) {
            return Err(BadTensor(
                "a dimension of size 0 holds no memory: make it at least 1".into(),
            ));
        }
        let shape = Shape(dimensions);
        match shape.elements() {
            Some(_) => Ok(shape),
            None => Err(BadTensor(format!(
                "{shape} has more than 2^64 elements: make it smaller"
            ))),
        }
    }

    /// The sizes, outermost first.
    pub fn dimensions(&self) -> &[u64] {
        &self.0
    }

    /// The number of elements; `None` beyond 2^64 - 1.
    pub fn elements(&self) -> Option<u64> {
        self.0.iter().try_fold(1u64, |product, d| product.checked_mul(*d))
    }

    /// The bytes of this many elements of `dtype`; `None` beyond 2^64 - 1.
    pub fn bytes(&self, dtype: Dtype) -> Option<u64> {
        self.elements()?.checked_mul(dtype.size())
    }
}

impl Default for Shape {
    /// 10000 x 20000: the first block of every new user (issue 2.7).
    fn default() -> Self {
        Shape(vec![10_000, 20_000])
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.pad(&text.join("x"))
    }
}

impl FromStr for Shape {
    type Err = BadTensor;

    /// Reads `10000x20000`, `10000,20000` or `10000 x 20000`.
    fn from_str(text: &str) -> Result<Self, BadTensor> {
        let dimensions = text
            .split(['x', 'X', ',', '×'])
            .map(|part| part.trim().parse::<u64>())
            .collect::<Result<Vec<u64>, _>>()
            .map_err(|_| BadTensor("a shape is whole numbers with x between them, such as 10000x20000".into()))?;
        Shape::new(dimensions)
    }
}

/// The element types of PyTorch that have a fixed size in whole bytes and one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 8 bytes.
    Float64,
    /// 4 bytes; PyTorch's default.
    #[default]
    Float32,
    /// 2 bytes.
    Float16,
    /// 2 bytes with the exponent of float32.
    BFloat16,
    /// 8 bytes.
    Int64,
    /// 4 bytes.
    Int32,
    /// 2 bytes.
    Int16,
    /// 1 byte.
    Int8,
    /// 1 byte.
    UInt8,
    /// 1 byte.
    Bool,
}

impl Dtype {
    /// All of them, in the order in which a chooser lists them.
    pub const ALL: [Dtype; 10] = [
        Dtype::Float64,
        Dtype::Float32,
        Dtype::Float16,
        Dtype::BFloat16,
        Dtype::Int64,
        Dtype::Int32,
        Dtype::Int16,
        Dtype::Int8,
        Dtype::UInt8,
        Dtype::Bool,
    ];

    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Dtype::Float64 | Dtype::Int64 => 8,
            Dtype::Float32 | Dtype::Int32 => 4,
            Dtype::Float16 | Dtype::BFloat16 | Dtype::Int16 => 2,
            Dtype::Int8 | Dtype::UInt8 | Dtype::Bool => 1,
        }
    }

    /// The name in PyTorch, without `torch.`.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Float64 => "float64",
            Dtype::Float32 => "float32",
            Dtype::Float16 => "float16",
            Dtype::BFloat16 => "bfloat16",
            Dtype::Int64 => "int64",
            Dtype::Int32 => "int32",
            Dtype::Int16 => "int16",
            Dtype::Int8 => "int8",
            Dtype::UInt8 => "uint8",
            Dtype::Bool => "bool",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dtype {
    type Err = BadTensor;

    /// Reads PyTorch's name, with or without `torch.`, or one of its aliases (`float`, `half`, `double`, ...).
    fn from_str(text: &str) -> Result<Self, BadTensor> {
        let name = text.trim();
        let name = name.strip_prefix("torch.").unwrap_or(name);
        let alias = match name {
            "float" => "float32",
            "double" => "float64",
            "half" => "float16",
            "long" => "int64",
            "int" => "int32",
            "short" => "int16",
            other => other,
        };
        Dtype::ALL.into_iter().find(|d| d.name() == alias).ok_or_else(|| {
            let names: Vec<&str> = Dtype::ALL.iter().map(|d| d.name()).collect();
            BadTensor(format!("not an element type; use one of {}", names.join(", ")))
        })
    }
}

macro_rules! as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}
as_text!(Shape);
as_text!(Dtype);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_reads_back_what_it_shows() {
        for text in ["10000x20000", "1", "2x3x4x5"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        assert_eq!("10000 x 20000".parse(), Ok(Shape::default()));
        assert_eq!(Shape::default().bytes(Dtype::Float32), Some(800_000_000));
    }

    #[test]
    fn a_bad_shape_says_what_a_good_one_is() {
        for text in ["", "x", "10x", "-1x3", "3x0", "1e9", "18446744073709551615x2"] {
            let error = text.parse::<Shape>().unwrap_err().to_string();
            assert!(
                error.contains("10000x20000") || error.contains("make it"),
                "{text}: {error}"
            );
        }
        assert_eq!(Shape(vec![u64::MAX]).bytes(Dtype::Int16), None);
    }

    #[test]
    fn every_dtype_reads_back_its_name() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(format!("torch.{dtype}").parse(), Ok(dtype));
        }
        assert!("float8".parse::<Dtype>().unwrap_err().to_string().contains("bfloat16"));
    }
}
