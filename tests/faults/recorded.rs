//! The recorded answers of filters after their last change. Later answers must be the same.

use redis::Connection;

use testkit::ask;
use testkit::filter_model::{FilterModel, Observed};

pub(crate) struct RecordedAnswers(Vec<(FilterModel, Observed)>);

impl RecordedAnswers {
    pub(crate) fn of(models: Vec<FilterModel>, client: &mut Connection) -> RecordedAnswers {
        let observed = models.into_iter().map(|model| {
            let observed = model.observe(client);
            (model, observed)
        });
        RecordedAnswers(observed.collect())
    }

    pub(crate) fn models(&self) -> impl Iterator<Item = &FilterModel> {
        self.0.iter().map(|(model, _)| model)
    }

    /// Panics unless all filters answer as recorded.
    pub(crate) fn check(&self, client: &mut Connection) {
        self.check_if(client, |_, _| true);
    }

    /// Panics unless all existing filters answer as recorded.
    pub(crate) fn check_existing(&self, client: &mut Connection) {
        self.check_if(client, |model, client| ask(client, &format!("EXISTS {}", model.key)));
    }

    /// Panics unless the chosen filters answer as recorded.
    pub(crate) fn check_if(&self, client: &mut Connection, chosen: impl Fn(&FilterModel, &mut Connection) -> bool) {
        for (model, expected) in &self.0 {
            if chosen(model, client) {
                assert_eq!(model.observe(client), *expected, "{}", model.key);
            }
        }
    }
}
