//! The functions of parameters that begin a run: `fit`, `start`, `resume_fit`, `solve`, `stream`, `resume`.

/// Adds the functions that start a fit to the parameters of a method. The text before each name is added to its docs.
macro_rules! run_methods {
    (
        $params:ty, $method:ty;
        $(#[$fit:meta])* fit;
        $(#[$start:meta])* start;
        $(#[$resume:meta])* resume_fit;
        $(#[$solve:meta])* solve;
    ) => {
        impl $params {
            /// Fits a model to `rows`.
            ///
            $(#[$fit])*
            ///
            /// # Errors
            /// [`Error::InvalidParam`](crate::Error::InvalidParam) with every problem of the parameters,
            /// [`Error::NotFinite`](crate::Error::NotFinite), [`Error::Source`](crate::Error::Source) for
            /// rows that do not give the access that the method needs, those of the source.
            pub fn fit<S: $crate::data::Source>(
                &self,
                rows: S,
            ) -> $crate::error::Result<<$method as $crate::fit::Method>::Model> {
                $crate::fit::Run::<$method>::fit(self, &rows)
            }

            /// A run over `rows` that the caller advances step by step with [`Run::advance`](crate::fit::Run::advance).
            ///
            $(#[$start])*
            ///
            /// # Errors
            /// [`Error::InvalidParam`](crate::Error::InvalidParam), [`Error::Source`](crate::Error::Source),
            /// [`Error::Empty`](crate::Error::Empty), [`Error::Memory`](crate::Error::Memory).
            pub fn start<S: $crate::data::Source>(
                &self,
                rows: S,
            ) -> $crate::error::Result<$crate::fit::Run<$method>> {
                $crate::fit::Run::start(self, &rows)
            }

            /// Resumes the run that [`Run::checkpoint`](crate::fit::Run::checkpoint) was called on, over the
            /// same rows and with the same parameters. The results are bit-identical; times and numbers of
            /// computed distances may differ.
            ///
            $(#[$resume])*
            ///
            /// # Errors
            /// As `start`; [`Error::Source`](crate::Error::Source) for a checkpoint whose parts do not fit together, of
            /// another method, or of other rows, as far as a sample of them tells.
            pub fn resume_fit<S: $crate::data::Source>(
                &self,
                checkpoint: &$crate::persist::Contents,
                rows: S,
            ) -> $crate::error::Result<$crate::fit::Run<$method>> {
                $crate::fit::Run::resumed(self, checkpoint, &rows)
            }

            /// An iterator over the steps of a fit; its `model` is valid after every step.
            ///
            $(#[$solve])*
            ///
            /// # Errors
            /// As `start`.
            #[doc(alias = "iter_fit")]
            pub fn solve<S: $crate::data::Source>(
                &self,
                rows: S,
            ) -> $crate::error::Result<$crate::fit::Steps<$method, S>> {
                $crate::fit::Steps::new(self, rows)
            }
        }
    };
}
pub(crate) use run_methods;

/// Adds the methods that begin a stream of batches to the parameters of a method.
macro_rules! stream_methods {
    (
        $params:ty, $method:ty;
        $(#[$stream:meta])* stream;
        $(#[$resume:meta])* resume;
    ) => {
        impl $params {
            /// A run without rows, for [`Run::partial_fit`](crate::fit::Run::partial_fit) with batches of the
            /// type of `rows`. No row is read: only the type and the columns of `rows` matter.
            ///
            $(#[$stream])*
            ///
            /// # Errors
            /// [`Error::InvalidParam`](crate::Error::InvalidParam).
            pub fn stream<S: $crate::data::Source>(
                &self,
                rows: S,
            ) -> $crate::error::Result<$crate::fit::Run<$method>> {
                $crate::fit::Run::stream(self, &rows)
            }

            /// A run that continues from what [`Run::state`](crate::fit::Run::state) returned, with these parameters.
            ///
            $(#[$resume])*
            ///
            /// # Errors
            /// [`Error::InvalidParam`](crate::Error::InvalidParam); [`Error::Source`](crate::Error::Source)
            /// for a state whose parts do not fit together, of another method, or of another number of clusters.
            pub fn resume(
                &self,
                state: &$crate::persist::Contents,
            ) -> $crate::error::Result<$crate::fit::Run<$method>> {
                $crate::fit::Run::resume(self, state)
            }
        }
    };
}
pub(crate) use stream_methods;
