// The labels of metric build_info: the sources and the target of this build.
#pragma once

#include <map>
#include <string>

namespace thermocline::server {

// version, commit, compiler, backend, arch. The commit is that of the last CMake configuration;
// "unknown" outside of a repository.
std::map<std::string, std::string> BuildInfo();

}  // namespace thermocline::server
