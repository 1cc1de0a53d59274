#include "compiler/build/compile_c.h"

#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "clang/Basic/Diagnostic.h"
#include "clang/Basic/DiagnosticOptions.h"
#include "clang/Basic/TargetInfo.h"
#include "clang/Basic/TargetOptions.h"
#include "clang/Basic/Version.h"
#include "clang/CodeGen/CodeGenAction.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/CompilerInvocation.h"
#include "clang/Frontend/TextDiagnosticPrinter.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/VirtualFileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include "proto/str_cat.h"

namespace stepone::build {
namespace {

constexpr char kSourcePath[] = "/kernel.c";
constexpr const char* kTriples[] = {"x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"};

void InitializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    LLVMInitializeAArch64AsmParser();
  });
}

bool KnowsProcessor(const char* triple, std::string_view isa) {
  clang::DiagnosticsEngine diagnostics(llvm::makeIntrusiveRefCnt<clang::DiagnosticIDs>(),
                                       llvm::makeIntrusiveRefCnt<clang::DiagnosticOptions>(),
                                       new clang::IgnoringDiagConsumer);
  auto options = std::make_shared<clang::TargetOptions>();
  options->Triple = triple;
  std::unique_ptr<clang::TargetInfo> info(clang::TargetInfo::CreateTargetInfo(diagnostics, options));
  return info != nullptr && info->isValidCPUName(llvm::StringRef(isa.data(), isa.size()));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CompilerArguments(std::string_view isa) {
  InitializeTargets();
  for (const char* triple : kTriples) {
    if (!KnowsProcessor(triple, isa)) continue;
    std::vector<std::string> arguments = {
        "-triple", triple, "-target-cpu", std::string(isa), "-emit-obj", "-O1",
        // The text holds explicit vectors; loops over lanes are for what has no vector form.
        "-mrelocation-model", "pic", "-pic-level", "2", "-fvisibility=hidden", "-mframe-pointer=none",
        // Nothing to call: loops must not become memset or memcpy.
        "-ffreestanding", "-fno-builtin",
        // Eager parity: a product is rounded before it is added to, except where the text says fma.
        "-ffp-contract=off", "-fno-rounding-math", "-fwrapv",
        // Text reads float bits through integers and storage through vector types.
        "-relaxed-aliasing", "-discard-value-names", "-disable-llvm-verifier", "-clear-ast-before-backend",
        "-main-file-name", "kernel.c", "-x", "c"};
    if (std::string_view(triple).starts_with("x86_64")) arguments.push_back("-mprefer-vector-width=512");
    if (std::string_view(triple).starts_with("aarch64")) {
      arguments.insert(arguments.end(), {"-target-abi", "aapcs"});
    }
    return arguments;
  }
  return absl::UnimplementedError(StrCat("clang knows no processor \"", isa, "\""));
}

absl::StatusOr<std::string> CompileC(std::string_view source, const std::vector<std::string>& arguments) {
  InitializeTargets();
  std::string messages;
  llvm::raw_string_ostream messages_stream(messages);
  auto diagnostic_options = llvm::makeIntrusiveRefCnt<clang::DiagnosticOptions>();
  auto diagnostics = llvm::makeIntrusiveRefCnt<clang::DiagnosticsEngine>(
      llvm::makeIntrusiveRefCnt<clang::DiagnosticIDs>(), diagnostic_options,
      new clang::TextDiagnosticPrinter(messages_stream, diagnostic_options.get()));

  diagnostics->setIgnoreAllWarnings(true);

  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(kSourcePath);
  auto invocation = std::make_shared<clang::CompilerInvocation>();
  if (!clang::CompilerInvocation::CreateFromArgs(*invocation, argv, *diagnostics)) {
    return absl::InternalError(StrCat("clang rejects its arguments: ", messages));
  }

  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  files->addFile(kSourcePath, 0,
                 llvm::MemoryBuffer::getMemBuffer(llvm::StringRef(source.data(), source.size()), kSourcePath, false));

  clang::CompilerInstance instance;
  instance.setInvocation(std::move(invocation));
  instance.setDiagnostics(diagnostics.get());
  instance.setFileManager(new clang::FileManager(clang::FileSystemOptions(), files));
  auto object = std::make_unique<llvm::SmallVector<char, 0>>();
  instance.setOutputStream(std::make_unique<llvm::raw_svector_ostream>(*object));
  clang::EmitObjAction action;
  if (!instance.ExecuteAction(action) || diagnostics->hasErrorOccurred()) {
    return absl::InternalError(StrCat("clang: ", messages.empty() ? "failed without a message" : messages));
  }
  return std::string(object->begin(), object->end());
}

std::string ClangVersion() { return clang::getClangFullVersion(); }

}  // namespace stepone::build
