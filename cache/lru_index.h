// Which entries there are, how large they are, and in which order they were used.
#ifndef STEPONE_CACHE_LRU_INDEX_H_
#define STEPONE_CACHE_LRU_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache/store.h"

namespace stepone {

// Least-recently-used bookkeeping with a byte count; it holds a Value per entry and knows no limit of its own.
// Thread-compatible: the store that uses it has the lock.
template <typename Value>
class LruIndex {
 public:
  struct Item {
    EntryId id;
    uint64_t bytes = 0;
    Value value;
  };

  // Makes `id` the most recently used entry, replacing what was there.
  void Put(const EntryId& id, uint64_t bytes, Value value) {
    Remove(id);
    order_.push_front(Item{id, bytes, std::move(value)});
    places_[id] = order_.begin();
    bytes_ += bytes;
  }

  // Makes `id` the most recently used entry. Null if there is none; valid until the next call that changes the index.
  Value* Touch(const EntryId& id) {
    const auto place = places_.find(id);
    if (place == places_.end()) return nullptr;
    order_.splice(order_.begin(), order_, place->second);
    return &place->second->value;
  }

  // Looks without using.
  const Item* Find(const EntryId& id) const {
    const auto place = places_.find(id);
    return place == places_.end() ? nullptr : &*place->second;
  }

  bool Contains(const EntryId& id) const { return places_.contains(id); }

  std::optional<Item> Remove(const EntryId& id) {
    const auto place = places_.find(id);
    if (place == places_.end()) return std::nullopt;
    std::optional<Item> item(std::move(*place->second));
    bytes_ -= item->bytes;
    order_.erase(place->second);
    places_.erase(place);
    return item;
  }

  // Takes least recently used entries out until at most `limit` bytes are left.
  std::vector<Item> EvictTo(uint64_t limit) {
    std::vector<Item> evicted;
    while (bytes_ > limit && !order_.empty()) evicted.push_back(*EvictOldest());
    return evicted;
  }

  std::optional<Item> EvictOldest() {
    if (order_.empty()) return std::nullopt;
    return Remove(EntryId(order_.back().id));
  }

  // Most recently used first.
  const std::list<Item>& order() const { return order_; }
  uint64_t bytes() const { return bytes_; }
  size_t size() const { return places_.size(); }

 private:
  std::list<Item> order_;
  absl::flat_hash_map<EntryId, typename std::list<Item>::iterator> places_;
  uint64_t bytes_ = 0;
};

}  // namespace stepone

#endif  // STEPONE_CACHE_LRU_INDEX_H_
