#include "server/grpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "server/grpc/streamed_method.h"

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

// `file`: nullptr if there is no file of that name.
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

constexpr const char* kServices[] = {"thermocline.v1.Inference", "grpc.health.v1.Health",
                                     "grpc.reflection.v1.ServerReflection",
                                     "grpc.reflection.v1alpha.ServerReflection"};

void Answer(const wire::ServerReflectionRequest& asked, wire::ServerReflectionResponse& out) {
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
      for (const char* name : kServices)
        out.mutable_list_services_response()->add_service()->set_name(name);
      return;
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  Refuse(::grpc::StatusCode::UNIMPLEMENTED, "nothing is asked for", out);
}

using Reactor =
    ::grpc::ServerBidiReactor<wire::ServerReflectionRequest, wire::ServerReflectionResponse>;

// One client's stream of requests and responses. All work runs on the strand. Lives until gRPC is
// done with it and no posted handler is left.
class Conversation final : public Reactor, public std::enable_shared_from_this<Conversation> {
 public:
  static Reactor* Start(boost::asio::io_context& io, ::grpc::CallbackServerContext& context,
                        std::chrono::seconds quiet_max) {
    const auto conversation = std::make_shared<Conversation>(io, context, quiet_max);
    conversation->self_ = conversation;
    conversation->Post([](Conversation& self) { self.Read(); });
    return conversation.get();
  }
  Conversation(boost::asio::io_context& io, ::grpc::CallbackServerContext& context,
               std::chrono::seconds quiet_max)
      : context_(context), quiet_max_(quiet_max), strand_(io.get_executor()), timer_(strand_) {}

 private:
  using Clock = std::chrono::steady_clock;

  template <typename Work>
  void Post(Work work) {
    boost::asio::post(strand_, [self = shared_from_this(), work] {
      try {
        work(*self);
      } catch (const std::exception&) {  // thrown by the allocator; ends this stream only
        self->End({::grpc::StatusCode::INTERNAL, "no memory for an answer"});
      }
    });
  }
  void Read() {
    if (ended_) return;
    timer_.expires_after(quiet_max_);
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error && self->timer_.expiry() <= Clock::now()) self->OnQuiet();
    });
    StartRead(&asked_);
  }
  void OnQuiet() {
    if (writing_) context_.TryCancel();  // Finish would wait for the unread answer
    End({::grpc::StatusCode::DEADLINE_EXCEEDED, "the stream was silent for too long"});
  }
  void OnReadDone(bool ok) override {
    Post([ok](Conversation& self) { self.OnAsked(ok); });
  }
  void OnAsked(bool ok) {
    if (ended_) return;
    if (!ok) return End(::grpc::Status::OK);
    Answer(asked_, answer_);
    writing_ = true;
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override {
    Post([ok](Conversation& self) {
      self.writing_ = false;
      ok ? self.Read() : self.End(::grpc::Status::OK);
    });
  }
  void End(const ::grpc::Status& status) {
    if (std::exchange(ended_, true)) return;
    timer_.cancel();
    Finish(status);
  }
  void OnDone() override {
    Post([](Conversation& self) { self.self_.reset(); });
  }

  ::grpc::CallbackServerContext& context_;
  const std::chrono::seconds quiet_max_;
  const boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<Conversation> self_;  // until OnDone
  wire::ServerReflectionRequest asked_;
  wire::ServerReflectionResponse answer_;
  bool writing_ = false, ended_ = false;
};

class Reflection final : public ::grpc::Service {
 public:
  Reflection(const char* path, boost::asio::io_context& io, std::chrono::seconds quiet_max) {
    AddMethod(MakeMethod<wire::ServerReflectionRequest, wire::ServerReflectionResponse>(
        path, [&io, quiet_max](::grpc::CallbackServerContext* context) {
          return Conversation::Start(io, *context, quiet_max);
        }));
  }
};

}  // namespace

std::vector<std::unique_ptr<::grpc::Service>> MakeReflections(boost::asio::io_context& io,
                                                              std::chrono::seconds quiet_max) {
  // Links the file into the pool, which has only files that are referenced.
  ::grpc::reflection::v1alpha::ServerReflectionRequest::descriptor();
  std::vector<std::unique_ptr<::grpc::Service>> made;
  for (const char* path : {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"})
    made.push_back(std::make_unique<Reflection>(path, io, quiet_max));
  return made;
}

}  // namespace thermocline::rpc
