#include "server/grpc/message_cost.h"

#include <string>
#include <vector>

#include "engine/base/index.h"

namespace thermocline::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void Count(const Message& message, server::BodyParts& parts);

void CountOne(const Message& message, const FieldDescriptor& field, server::BodyParts& parts) {
  std::string scratch;
  const google::protobuf::Reflection& of = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
    Count(of.GetMessage(message, &field), parts);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING)
    parts.words.Add(of.GetStringReference(message, &field, &scratch), true);
}

void CountAll(const Message& message, const FieldDescriptor& field, server::BodyParts& parts) {
  std::string scratch;
  const google::protobuf::Reflection& of = *message.GetReflection();
  const int count = of.FieldSize(message, &field);
  for (int i = 0; i < count && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE; ++i)
    Count(of.GetRepeatedMessage(message, &field, i), parts);
  for (int i = 0; i < count && field.cpp_type() == FieldDescriptor::CPPTYPE_STRING; ++i)
    parts.words.Add(of.GetRepeatedStringReference(message, &field, i, &scratch), false);
  parts.values += count;
}

void Count(const Message& message, server::BodyParts& parts) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  ++parts.containers;
  parts.values += fields.size();
  for (const FieldDescriptor* field : fields)
    field->is_repeated() ? CountAll(message, *field, parts) : CountOne(message, *field, parts);
}

}  // namespace

server::BodyCost CostOf(const Message& message) {
  server::BodyParts parts{.bytes = message.ByteSizeLong()};
  Count(message, parts);
  return {.bytes = parts.cost()};
}

}  // namespace thermocline::rpc
