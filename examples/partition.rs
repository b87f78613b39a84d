//! Keeps the inverted lists of a vector index while rows arrive: a fit, updates, a file, and a search.
//!
//! ```text
//! cargo run --release --example partition
//! ```

use std::collections::BTreeMap;

use shoal::HierarchicalKMeans;
use shoal::partition::{Fetched, Partition, PartitionChange};

type Row = [f32; 2];

/// The database: the key and the row of every entry, per cell.
#[derive(Default)]
struct Lists(BTreeMap<u64, Vec<(u64, Row)>>);

impl Lists {
    fn insert(&mut self, cell: u64, key: u64, row: Row) {
        self.0.entry(cell).or_default().push((key, row));
    }

    /// What `Partition::update` asks for: the rows that are stored in some cells.
    fn fetch(&self, ids: &[u64]) -> Fetched<f32> {
        let mut fetched = Fetched::default();
        for (id, list) in ids.iter().filter_map(|id| Some((*id, self.0.get(id)?))) {
            for (key, row) in list {
                fetched.push(*key, id, row);
            }
        }
        fetched
    }

    /// Writes a change. A database does it in one transaction.
    fn apply(&mut self, change: &PartitionChange, first_key: u64, new: &[Row]) {
        for moved in &change.moved {
            let list = self.0.get_mut(&moved.from).expect("a cell that was fetched");
            let place = list.iter().position(|(key, _)| *key == moved.key).expect("a row that was fetched");
            let (key, row) = list.swap_remove(place);
            self.insert(moved.to, key, row);
        }
        for (key, (&cell, &row)) in (first_key..).zip(change.labels.iter().zip(new)) {
            self.insert(cell, key, row);
        }
        for gone in change.split_ids.iter().chain(&change.joined_ids) {
            let list = self.0.remove(gone);
            assert!(list.is_none_or(|list| list.is_empty()), "all rows of such cells have moved");
        }
    }
}

fn main() -> shoal::Result<()> {
    let rows: Vec<Row> = (0..20_000u32).map(|i| [(i * 7919 % 1009) as f32, (i * 31 % 997) as f32]).collect();
    let model = HierarchicalKMeans::params(200).rng_seed(7).fit(&rows)?;
    let mut partition = Partition::from_model(&model)?;
    let mut lists = Lists::default();
    for (key, (&label, &row)) in (0..).zip(model.labels().iter().zip(&rows)) {
        lists.insert(u64::from(label), key, row);
    }

    // Rows arrive at one side: cells there are split.
    let mut n_rows = rows.len() as u64;
    for batch in 0..5u16 {
        let new: Vec<Row> = (0..2000u16)
            .map(|i| [f32::from(i % 100) * 2.0, f32::from(i * 7 % 997) + f32::from(batch)])
            .collect();
        let change = partition.update(&new, |ids| Ok(lists.fetch(ids)))?;
        lists.apply(&change, n_rows, &new);
        n_rows += new.len() as u64;
        println!(
            "{} cells, {} of them new; {} rows fetched, {} moved",
            partition.ids().len(),
            change.new_ids.len(),
            change.n_fetched,
            change.moved.len()
        );
    }
    for (id, &size) in partition.ids().iter().zip(partition.sizes()) {
        assert_eq!(lists.0.get(id).map_or(0, Vec::len) as u64, size);
        assert!(size <= 2 * partition.target());
    }

    let path = std::env::temp_dir().join(format!("shoal-partition-{}.safetensors", std::process::id()));
    partition.save(&path)?;
    let loaded = Partition::load(&path)?;
    std::fs::remove_file(&path).map_err(|source| shoal::Error::Io { path, source })?;
    assert_eq!(loaded, partition);

    // A search scans the list of the nearest cell. More cells find more neighbors.
    let query = [40.0, 500.0];
    let cell = loaded.predict(&[query])?[0];
    let far = |row: &Row| (row[0] - query[0]).powi(2) + (row[1] - query[1]).powi(2);
    let list = &lists.0[&cell];
    let (key, row) = list.iter().min_by(|a, b| far(&a.1).total_cmp(&far(&b.1))).expect("a cell with rows");
    println!("nearest to {query:?} among {} rows of cell {cell}: row {key}, {row:?}", list.len());
    Ok(())
}
