//! Values as Python writes them, and files that are made to hurt.

use super::*;

#[test]
fn reads_what_python_writes() {
    // pickle.dumps({'a': [1, 300, 2**40, -5, True, None, 1.5], 'b': (1, 'x')}, protocol=2)
    let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01M,\x01\x8a\x06\x00\x00\x00\x00\x00\x01J\xfb\xff\xff\xff\x88NG?\xf8\x00\x00\x00\x00\x00\x00eX\x01\x00\x00\x00bq\x03K\x01X\x01\x00\x00\x00xq\x04\x86q\x05u.";
    let pickle = Pickle::parse(bytes).unwrap();
    let list = pickle.list(pickle.get(pickle.root, "a").unwrap()).unwrap();
    assert_eq!(
        list,
        [
            Value::Int(1),
            Value::Int(300),
            Value::Int(1 << 40),
            Value::Int(-5),
            Value::Bool(true),
            Value::None,
            Value::Float(1.5)
        ]
    );
    let pair = pickle.list(pickle.get(pickle.root, "b").unwrap()).unwrap();
    assert_eq!(pickle.text(pair[1]), Some("x"));
    assert_eq!(pickle.keys(pickle.root), ["a", "b"]);
}

#[test]
fn refuses_code_and_hostile_files() {
    for (bytes, says) in [
        (&b"\x80\x04cos\nsystem\n."[..], "GLOBAL"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL"),
        (b"\x80\x09.", "protocol 9"),
        (b"\x80\x04", "breaks off"),
        (b"\x80\x04X\xff\xff\xff\xff", "breaks off"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "breaks off"),
        (b"\x80\x04.", "the stack is empty"),
        (b"\x80\x04h\x05.", "nothing was memoised as 5"),
        (b"\x80\x04\x8a\xff", "an integer of 255 bytes"),
        (b"\x80\x04K\x01a.", "no list"),
        (b"\x80\x04K\x01K\x02a.", "no list"),
        (b"\x80\x04e", "no mark"),
    ] {
        let error = Pickle::parse(bytes).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    for (length, says) in [(9, true), (10, false)] {
        let mut long = vec![0x80, 4, 0x8a, length];
        long.extend(std::iter::repeat_n(0xff, usize::from(length) - 1));
        long.extend(b"\0.");
        // 2^64 - 1 in nine bytes; eight bits more do not fit.
        assert_eq!(
            Pickle::parse(&long).ok().and_then(|p| Pickle::unsigned(p.root)),
            says.then_some(u64::MAX)
        );
    }
    // Many nested lists, and a list that holds itself.
    let mut deep = b"\x80\x04".to_vec();
    deep.extend(std::iter::repeat_n(b']', 300_000));
    deep.extend(std::iter::repeat_n(b'a', 299_999));
    deep.push(b'.');
    assert!(Pickle::parse(&deep).is_ok());
    assert!(Pickle::parse(b"\x80\x04]\x94h\x00a.").is_ok());
}

#[test]
fn a_small_file_of_many_values_is_refused() {
    for (start, unit) in [
        (&b"\x80\x04("[..], &b"]"[..]),
        (b"\x80\x04(", b"N"),
        (b"\x80\x04", b"("),
        (b"\x80\x04N", b"\x94"),
        (b"\x80\x04N", b"r\xff\xff\x00\x00"),
        (b"\x80\x04(", b"]Na"),
        (b"\x80\x04(", b"}NNs"),
        (b"\x80\x04(", b"\x8c\x00"),
    ] {
        let mut bomb = start.to_vec();
        for n in 0..200_000_u32 {
            bomb.extend_from_slice(unit);
            if let [b'r', ..] = unit {
                let end = bomb.len();
                bomb[end - 4..].copy_from_slice(&(n * 2 + 7).to_le_bytes());
            }
        }
        let error = Pickle::parse_within(&bomb, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("it is refused"), "{unit:?}: {error}");
    }
    let real = include_bytes!("../../../tests/torch/snapshots/mlp.pickle");
    assert!(Pickle::parse_within(real, real.len() as u64 * SPREAD).is_ok());
    assert_eq!((size_of::<Value>(), size_of::<Node>()), (16, 32));
}
