# CUDA, if THERMOCLINE_CUDA says so: sets THERMOCLINE_HAS_CUDA, and cuda_flags(TARGET).
#
# AUTO builds them where there is a GPU to run them, and for that GPU alone; ON for every architecture below.
# nvcc is looked for in the PATH, under CUDA_PATH and where NVIDIA's packages put it. Builds with
# sanitizers and for other processors have none of it: their tests run the same sources emulated.
set(THERMOCLINE_HAS_CUDA OFF)
set(THERMOCLINE_NO_CUDA "THERMOCLINE_CUDA is OFF")
if(THERMOCLINE_CUDA STREQUAL "OFF")
  return()
endif()
if(THERMOCLINE_SANITIZE OR CMAKE_CROSSCOMPILING)
  set(THERMOCLINE_NO_CUDA "sanitizers and other processors are built without")
  if(THERMOCLINE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "THERMOCLINE_CUDA=ON: ${THERMOCLINE_NO_CUDA}")
  endif()
  return()
endif()

find_program(THERMOCLINE_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT THERMOCLINE_NVCC)
  set(THERMOCLINE_NO_CUDA "nvcc was not found")
  if(THERMOCLINE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "THERMOCLINE_CUDA=ON, but nvcc was not found: install the CUDA Toolkit (12.2 or newer), or set CUDACXX")
  endif()
  return()
endif()

if(THERMOCLINE_CUDA STREQUAL "AUTO")
  if(NOT EXISTS /dev/nvidia0 AND NOT EXISTS /dev/nvhost-gpu AND NOT EXISTS /dev/dxg)  # the others: Jetson, WSL
    set(THERMOCLINE_NO_CUDA "there is no NVIDIA GPU; THERMOCLINE_CUDA=ON builds for other machines")
    return()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES native CACHE STRING "Compute capabilities to build for")
endif()
# Ampere (A100, RTX 30, Orin), Ada and Hopper as machine code; newer ones compile Hopper's at their first start.
set(CMAKE_CUDA_ARCHITECTURES "80-real;86-real;87-real;89-real;90" CACHE STRING "Compute capabilities to build for")
set(CMAKE_CUDA_COMPILER ${THERMOCLINE_NVCC})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.2)
  message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is too old: install 12.2 or newer, or set THERMOCLINE_CUDA=OFF")
endif()
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 12 can
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(THERMOCLINE_HAS_CUDA ON)
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for compute capabilities ${CMAKE_CUDA_ARCHITECTURES}")

# Bits: a * b + c is contracted only where fmaf says so, divisions and roots are IEEE's (nvcc's default).
# Two nvcc at once would not make a build faster: one compiles its architectures one after the other.
function(cuda_flags target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --Werror=all-warnings
    -Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off>)
  set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  if(architectures STREQUAL "native")
    set(architectures ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
  endif()
  list(JOIN architectures " " architectures)
  string(REGEX REPLACE "([0-9])([0-9])(-real)?( |$)" "\\1.\\2 " architectures "${architectures}")
  string(STRIP "${architectures}" architectures)
  set_property(SOURCE runtime.cu cuda/runtime.cu APPEND PROPERTY COMPILE_DEFINITIONS
    "THERMOCLINE_CUDA_ARCHITECTURES=\"${architectures}\"")
  set_target_properties(${target} PROPERTIES CUDA_RESOLVE_DEVICE_SYMBOLS OFF)
endfunction()
