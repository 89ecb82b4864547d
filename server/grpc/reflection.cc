#include "server/grpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>

#include "grpc/reflection/v1/reflection.grpc.pb.h"

namespace thermocline::rpc {
namespace {

namespace wire = ::grpc::reflection::v1;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

const DescriptorPool& Pool() { return *DescriptorPool::generated_pool(); }

void Refuse(::grpc::StatusCode code, const std::string& message,
            wire::ServerReflectionResponse& out) {
  out.mutable_error_response()->set_error_code(code);
  out.mutable_error_response()->set_error_message(message);
}

void AddFile(const FileDescriptor& file, std::set<const FileDescriptor*>& told,
             wire::FileDescriptorResponse& out) {
  if (!told.insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  out.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), told, out);
}

// Null: there is none of that name.
void TellFile(const FileDescriptor* file, wire::ServerReflectionResponse& out) {
  if (file == nullptr) return Refuse(::grpc::StatusCode::NOT_FOUND, "there is no such file", out);
  std::set<const FileDescriptor*> told;
  AddFile(*file, told, *out.mutable_file_descriptor_response());
}

void TellExtension(const wire::ExtensionRequest& asked, wire::ServerReflectionResponse& out) {
  const Descriptor* type = Pool().FindMessageTypeByName(asked.containing_type());
  const FieldDescriptor* field =
      type == nullptr ? nullptr : Pool().FindExtensionByNumber(type, asked.extension_number());
  TellFile(field == nullptr ? nullptr : field->file(), out);
}

void TellExtensionNumbers(const std::string& name, wire::ServerReflectionResponse& out) {
  const Descriptor* type = Pool().FindMessageTypeByName(name);
  if (type == nullptr)
    return Refuse(::grpc::StatusCode::NOT_FOUND, "there is no such message", out);
  std::vector<const FieldDescriptor*> fields;
  Pool().FindAllExtensions(type, &fields);
  auto& numbers = *out.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(name);
  for (const FieldDescriptor* field : fields) numbers.add_extension_number(field->number());
}

void Answer(const std::vector<std::string>& services, const wire::ServerReflectionRequest& asked,
            wire::ServerReflectionResponse& out) {
  out.Clear();
  out.set_valid_host(asked.host());
  *out.mutable_original_request() = asked;
  using Request = wire::ServerReflectionRequest;
  switch (asked.message_request_case()) {
    case Request::kFileByFilename:
      return TellFile(Pool().FindFileByName(asked.file_by_filename()), out);
    case Request::kFileContainingSymbol:
      return TellFile(Pool().FindFileContainingSymbol(asked.file_containing_symbol()), out);
    case Request::kFileContainingExtension:
      return TellExtension(asked.file_containing_extension(), out);
    case Request::kAllExtensionNumbersOfType:
      return TellExtensionNumbers(asked.all_extension_numbers_of_type(), out);
    case Request::kListServices:
      for (const std::string& name : services)
        out.mutable_list_services_response()->add_service()->set_name(name);
      return;
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  Refuse(::grpc::StatusCode::UNIMPLEMENTED, "nothing is asked for", out);
}

// One client's stream: question, answer, question. Ends itself.
class Conversation final : public ::grpc::ServerBidiReactor<wire::ServerReflectionRequest,
                                                            wire::ServerReflectionResponse> {
 public:
  explicit Conversation(const std::vector<std::string>& services) : services_(services) {
    StartRead(&asked_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(::grpc::Status::OK);
    Answer(services_, asked_, answer_);
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(::grpc::Status::OK);
    StartRead(&asked_);
  }
  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>& services_;
  wire::ServerReflectionRequest asked_;
  wire::ServerReflectionResponse answer_;
};

class Reflection final : public wire::ServerReflection::CallbackService {
 public:
  explicit Reflection(std::vector<std::string> services) : services_(std::move(services)) {}
  ::grpc::ServerBidiReactor<wire::ServerReflectionRequest, wire::ServerReflectionResponse>*
  ServerReflectionInfo(::grpc::CallbackServerContext*) override {
    return new Conversation(services_);
  }

 private:
  const std::vector<std::string> services_;
};

}  // namespace

std::unique_ptr<::grpc::Service> MakeReflection(std::vector<std::string> services) {
  return std::make_unique<Reflection>(std::move(services));
}

}  // namespace thermocline::rpc
