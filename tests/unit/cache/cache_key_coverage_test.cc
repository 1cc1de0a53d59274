// Every field of a request is either in its key or on the list of those left out. A new field fails these tests until
// somebody has decided.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/cache/sample_request.h"

namespace stepone {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// For people or for the runtime; changes nothing that is compiled.
const std::set<std::string>& LeftOut() {
  static const auto* const fields = new std::set<std::string>{"stepone.v1.Device.index", "stepone.v1.Node.diagnostics",
                                                              "stepone.v1.Node.name", "stepone.v1.Value.name"};
  return *fields;
}

// In the key, but not in every place or not by its value.
const std::set<std::string>& PartlyInTheKey() {
  static const auto* const fields = new std::set<std::string>{
      "stepone.v1.Argument.string_value",  // not where it names a process group
      "stepone.v1.Output.none",            // that it is set counts
      "stepone.v1.Symbol.name",            // by position; where nothing mentions the symbol, a name is nothing
      "stepone.v1.Value.host_scalar",      // that it is set counts
      "stepone.v1.ValueList.values",       // not where `present` is false
  };
  return *fields;
}

// Calls `visit` with a function that changes one scalar, and one that puts it back.
using ScalarVisitor =
    std::function<void(const FieldDescriptor*, const std::function<void()>&, const std::function<void()>&)>;

template <typename Get, typename Set, typename Other>
void Visit(const FieldDescriptor* field, const ScalarVisitor& visit, Get get, Set set, Other other) {
  const auto before = get();
  visit(field, [&] { set(other(before)); }, [&] { set(before); });
}

void VisitScalar(Message* message, const FieldDescriptor* field, int at, const ScalarVisitor& visit) {
  const Reflection* r = message->GetReflection();
  const bool many = field->is_repeated();
#define STEPONE_VISIT(Type, other)                                                                                    \
  return Visit(                                                                                                       \
      field, visit, [=] { return many ? r->GetRepeated##Type(*message, field, at) : r->Get##Type(*message, field); }, \
      [=](auto value) {                                                                                               \
        many ? r->SetRepeated##Type(message, field, at, value) : r->Set##Type(message, field, value);                 \
      },                                                                                                              \
      [](auto value) { return other; })
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      STEPONE_VISIT(Int32, value + 1);
    case FieldDescriptor::CPPTYPE_INT64:
      STEPONE_VISIT(Int64, value + 1);
    case FieldDescriptor::CPPTYPE_UINT32:
      STEPONE_VISIT(UInt32, value + 1);
    case FieldDescriptor::CPPTYPE_UINT64:
      STEPONE_VISIT(UInt64, value + 1);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      STEPONE_VISIT(Double, value + 1e-9);
    case FieldDescriptor::CPPTYPE_BOOL:
      STEPONE_VISIT(Bool, !value);
    case FieldDescriptor::CPPTYPE_ENUM:
      STEPONE_VISIT(EnumValue, value + 1);
    case FieldDescriptor::CPPTYPE_STRING:
      STEPONE_VISIT(String, value + "x");
    default:
      FAIL() << "a type that this test does not know: " << field->full_name();
  }
#undef STEPONE_VISIT
}

void VisitAll(Message* message, const ScalarVisitor& visit) {
  std::vector<const FieldDescriptor*> fields;
  message->GetReflection()->ListFields(*message, &fields);
  const Reflection* r = message->GetReflection();
  for (const FieldDescriptor* field : fields) {
    if (field->is_map()) continue;  // entries have no fixed places; see below
    const int count = field->is_repeated() ? r->FieldSize(*message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        VisitScalar(message, field, i, visit);
      } else if (field->is_repeated()) {
        VisitAll(r->MutableRepeatedMessage(message, field, i), visit);
      } else {
        VisitAll(r->MutableMessage(message, field), visit);
      }
    }
  }
}

void CollectScalars(const Descriptor* descriptor, std::set<std::string>& fields, std::set<const Descriptor*>& seen) {
  if (!seen.insert(descriptor).second) return;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_map()) {
      EXPECT_EQ(field->full_name(), "stepone.v1.CodeOptions.backend_options") << "test the new map below";
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      CollectScalars(field->message_type(), fields, seen);
    } else {
      fields.insert(field->full_name());
    }
  }
}

TEST(CacheKeyCoverageTest, EveryFieldIsInTheKeyOrLeftOutOnPurpose) {
  SampleRequest request = RichRequest();
  const Digest before = request.Key().key;
  std::map<std::string, int> changes;
  std::map<std::string, int> visits;
  const ScalarVisitor visit = [&](const FieldDescriptor* field, const std::function<void()>& change,
                                  const std::function<void()>& restore) {
    change();
    const bool changed = request.Key().key != before;
    restore();
    ASSERT_EQ(request.Key().key, before) << field->full_name();
    ++visits[field->full_name()];
    changes[field->full_name()] += changed;
    if (!LeftOut().contains(field->full_name()) && !PartlyInTheKey().contains(field->full_name())) {
      EXPECT_TRUE(changed) << field->full_name() << " is not in the key";
    }
  };
  for (Message* message : {static_cast<Message*>(&request.graph), static_cast<Message*>(&request.target),
                           static_cast<Message*>(&request.options)}) {
    VisitAll(message, visit);
  }

  std::set<std::string> all;
  std::set<const Descriptor*> seen;
  for (const Descriptor* descriptor :
       {v1::Graph::descriptor(), v1::Target::descriptor(), v1::CodeOptions::descriptor()}) {
    CollectScalars(descriptor, all, seen);
  }
  EXPECT_GT(all.size(), 50u);
  for (const std::string& field : all) {
    EXPECT_GT(visits[field], 0) << field << " is not set in RichRequest: add it there";
    if (LeftOut().contains(field)) {
      EXPECT_EQ(changes[field], 0) << field << " must not reach the key";
    } else if (field != "stepone.v1.Output.none" && field != "stepone.v1.Value.host_scalar") {
      EXPECT_GT(changes[field], 0) << field;
    }
  }
}

TEST(CacheKeyCoverageTest, EveryCircumstanceIsInTheKeyOfATrace) {
  SampleRequest request = RichRequest();
  const auto key = [&request] {
    return TraceKey("a\nb", request.target, request.options, request.fingerprint, request.tenant).key;
  };
  const Digest before = key();
  int visits = 0;
  const ScalarVisitor visit = [&](const FieldDescriptor* field, const std::function<void()>& change,
                                  const std::function<void()>& restore) {
    change();
    EXPECT_NE(key(), before) << field->full_name() << " is not in the key";
    restore();
    ++visits;
  };
  VisitAll(&request.target, visit);
  VisitAll(&request.options, visit);
  EXPECT_GE(visits, v1::Target::descriptor()->field_count() + v1::CodeOptions::descriptor()->field_count() - 1);
  (*request.options.mutable_backend_options())["alpha"] = "other";
  EXPECT_NE(key(), before);
  request = RichRequest();
  EXPECT_NE(key(), request.Key().key) << "the key of a trace is no graph's";
}

TEST(CacheKeyCoverageTest, BackendOptionsAreInTheKey) {
  const Digest before = RichRequest().Key().key;
  SampleRequest request = RichRequest();
  (*request.options.mutable_backend_options())["alpha"] = "other";
  EXPECT_NE(request.Key().key, before);
  request = RichRequest();
  request.options.mutable_backend_options()->erase("alpha");
  const Digest without = request.Key().key;
  EXPECT_NE(without, before);
  (*request.options.mutable_backend_options())["alpha2"] = "1";
  EXPECT_NE(request.Key().key, before);
  EXPECT_NE(request.Key().key, without);
}

TEST(CacheKeyCoverageTest, FingerprintAndTenantAreInTheKey) {
  SampleRequest request = RichRequest();
  const Digest before = request.Key().key;
  request.fingerprint += "x";
  EXPECT_NE(request.Key().key, before);
  request = RichRequest();
  request.tenant += "x";
  EXPECT_NE(request.Key().key, before);
  request = RichRequest();
  request.tenant = "";
  request.fingerprint = "team-acompiler 1";
  EXPECT_NE(request.Key().key, before);
}

}  // namespace
}  // namespace stepone
