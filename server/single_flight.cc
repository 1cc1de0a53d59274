#include "server/single_flight.h"

#include <openssl/rand.h>

#include <utility>

#include "absl/strings/escaping.h"

namespace stepone::server {
namespace {

std::string RandomId() {
  std::string bytes(16, '\0');
  RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  return absl::BytesToHexString(bytes);
}

}  // namespace

OperationPtr SingleFlight::Open(const v1::ClientContext& context, std::vector<std::string> known_objects,
                                std::shared_ptr<EventSink> sink) {
  auto operation = std::make_shared<Operation>();
  operation->id = RandomId();
  operation->tenant = context.tenant();
  operation->job = context.job();
  operation->known_objects = std::move(known_objects);
  operation->sink = std::move(sink);
  operations_[operation->id] = operation;
  return operation;
}

OperationPtr SingleFlight::Find(const std::string& id) const {
  const auto found = operations_.find(id);
  return found == operations_.end() ? nullptr : found->second;
}

OperationPtr SingleFlight::Find(const std::string& id, const std::string& tenant) const {
  OperationPtr operation = Find(id);
  return operation != nullptr && operation->tenant == tenant ? operation : nullptr;
}

void SingleFlight::Close(const OperationPtr& operation) {
  Leave(operation);
  operations_.erase(operation->id);
}

FlightPtr SingleFlight::FindFlight(const Digest& key) const {
  const auto found = listed_.find(key);
  return found == listed_.end() ? nullptr : found->second;
}

FlightPtr SingleFlight::Lead(const OperationPtr& operation, KeyMaterial material, bool listed) {
  auto flight = std::make_shared<Flight>();
  flight->material = std::move(material);
  flight->listed = listed && listed_.try_emplace(flight->material.key, flight).second;
  ++flights_;
  Join(flight, operation);
  operation->joined = false;
  return flight;
}

void SingleFlight::Join(const FlightPtr& flight, const OperationPtr& operation) {
  operation->flight = flight;
  operation->joined = true;
  flight->waiters.push_back(operation);
}

FlightPtr SingleFlight::Leave(const OperationPtr& operation) {
  FlightPtr flight = std::exchange(operation->flight, nullptr);
  if (flight == nullptr) return nullptr;
  std::erase(flight->waiters, operation);
  return flight->waiters.empty() && !flight->landed ? flight : nullptr;
}

void SingleFlight::Unlist(const FlightPtr& flight) {
  if (!flight->listed) return;
  flight->listed = false;
  listed_.erase(flight->material.key);
}

std::vector<OperationPtr> SingleFlight::Land(const FlightPtr& flight) {
  Unlist(flight);
  flight->landed = true;
  --flights_;
  std::vector<OperationPtr> waiters = std::exchange(flight->waiters, {});
  for (const OperationPtr& operation : waiters) operation->flight = nullptr;
  return waiters;
}

}  // namespace stepone::server
