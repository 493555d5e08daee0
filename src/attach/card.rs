//! Which card a device of the process is: by the uuid in its allocator, else by its number where that is certain
//! (allocator-spec 7.7b).

use super::survey::Subject;
use crate::reading::{Reading, WhyKind};
use crate::source::DeviceIdentity;

/// The card whose 16 raw uuid bytes stand in the allocator, and where: proof, whatever the layout (2.11 and later).
pub fn by_uuid<'a>(window: &[u64], gpus: &'a [DeviceIdentity]) -> Option<(usize, &'a DeviceIdentity)> {
    let bytes = object::pod::bytes_of_slice(window);
    let mut hits = gpus.iter().filter_map(|gpu| {
        let raw = raw_uuid(&gpu.uuid)?;
        Some((bytes.windows(16).position(|w| w == raw)?, gpu))
    });
    // Two cards in one allocator would prove neither.
    hits.next().filter(|_| hits.next().is_none())
}

/// The bytes of "GPU-01234567-89ab-...".
fn raw_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.strip_prefix("GPU-")?.bytes().filter(|b| *b != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let mut raw = [0; 16];
    for (byte, pair) in raw.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    // An unset uuid is everywhere.
    (raw != [0; 16]).then_some(raw)
}

/// The card by the device's number and the environment that the process was started with: for releases that store no
/// property. Taken only if the count of devices agrees and the numbering is certain.
pub fn by_number(subject: &Subject<'_>) -> Reading<String> {
    let missing = |text: &'static str| Reading::missing(WhyKind::Unknown, text);
    if subject.gpus.is_empty() {
        return Reading::missing(WhyKind::NotYet, "the machine's cards are not known");
    }
    let variable = |name| subject.process.variable(name).ok().flatten();
    let visible = variable("CUDA_VISIBLE_DEVICES");
    let by_bus = variable("CUDA_DEVICE_ORDER").is_some_and(|order| order == "PCI_BUS_ID");
    card_by_number(
        subject.gpus,
        visible.as_deref(),
        by_bus,
        subject.ordinal,
        subject.devices,
    )
    .map_or_else(missing, |uuid| Reading::Is(uuid.to_owned()))
}

/// See [`by_number`]. CUDA numbers by speed unless told to go by bus; cards of one kind keep the order of the bus.
fn card_by_number<'a>(
    gpus: &'a [DeviceIdentity],
    visible: Option<&str>,
    by_bus: bool,
    ordinal: usize,
    devices: usize,
) -> Result<&'a str, &'static str> {
    let numbering = by_bus || gpus.windows(2).all(|pair| pair[0].name == pair[1].name);
    let numbered = |index: usize| match gpus.get(index) {
        Some(gpu) if numbering => Ok(gpu.uuid.as_str()),
        Some(_) => Err("cards of several kinds: CUDA's numbering is not known (set CUDA_DEVICE_ORDER=PCI_BUS_ID)"),
        None => Err("CUDA_VISIBLE_DEVICES names a card that is not here"),
    };
    let Some(visible) = visible else {
        return if devices == gpus.len() {
            numbered(ordinal)
        } else {
            Err("the process sees other cards than this machine has")
        };
    };
    let entries: Vec<&str> = visible.split(',').map(str::trim).collect();
    if entries.len() != devices {
        return Err("CUDA_VISIBLE_DEVICES was changed after the start");
    }
    let entry = entries[ordinal];
    if let Ok(index) = entry.parse() {
        return numbered(index);
    }
    let mut hits = gpus.iter().filter(|g| entry.len() > 4 && g.uuid.starts_with(entry));
    match (hits.next(), hits.next()) {
        (Some(gpu), None) => Ok(&gpu.uuid),
        _ => Err("CUDA_VISIBLE_DEVICES names a card that is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(names: &[&str]) -> Vec<DeviceIdentity> {
        let card = |(n, name): (usize, &&str)| DeviceIdentity {
            index: n as u32,
            uuid: format!("GPU-{n}0000000-0000-0000-0000-00000000000{n}"),
            name: (*name).to_owned(),
            pci: Reading::not_yet(),
            simulated: false,
            unified: false,
        };
        names.iter().enumerate().map(card).collect()
    }

    #[test]
    fn a_card_by_its_number_only_where_the_numbering_is_certain() {
        let same = cards(&["H200", "H200", "H200"]);
        let mixed = cards(&["H200", "T4"]);
        let by = |gpus, visible, by_bus, ordinal, devices| card_by_number(gpus, visible, by_bus, ordinal, devices).ok();
        assert_eq!(by(&same, None, false, 2, 3), Some(same[2].uuid.as_str()));
        assert_eq!(by(&same, Some("2, 0"), false, 0, 2), Some(same[2].uuid.as_str()));
        assert_eq!(by(&same, Some("GPU-1"), false, 0, 1), Some(same[1].uuid.as_str()));
        assert_eq!(by(&mixed, None, true, 1, 2), Some(mixed[1].uuid.as_str()));
        for (gpus, visible, by_bus, ordinal, devices) in [
            // Cards of several kinds: CUDA puts the fastest first.
            (&mixed, None, false, 1, 2),
            // Fewer or more devices than the environment says: it was changed later.
            (&same, None, false, 0, 1),
            (&same, Some("0,1"), false, 0, 1),
            (&same, Some("7"), false, 0, 1),
            (&same, Some("GPU-"), false, 0, 1),
            (&same, Some("MIG-1234"), false, 0, 1),
            (&same, Some(""), false, 0, 1),
        ] {
            assert_eq!(
                by(gpus, visible, by_bus, ordinal, devices),
                None,
                "{visible:?} {devices}"
            );
        }
    }

    #[test]
    fn a_uuid_is_sixteen_bytes_and_not_all_zero() {
        assert_eq!(
            raw_uuid("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f").map(|r| r[15]),
            Some(15)
        );
        for no in [
            "",
            "GPU-",
            "GPU-0001",
            "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f",
            "GPU-00000000-0000-0000-0000-000000000000",
        ] {
            assert_eq!(raw_uuid(no), None, "{no}");
        }
    }
}
